"""One life of a host, as its agent sees it: how it starts, what it answers, why it ends."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.worker import host_connection
from agents.worker.host import Host, HostCommand, find_host_file, how_it_exited
from agents.worker.leftovers import WORKER_VARIABLE, WorkerFolder, claim
from messages.ids import Generation, Rank
from runtime.errors import UserError
from tests.conftest import eventually
from tests.light import light_torch
from tests.worker.fakes import SECONDS, a_worker_of_this_process, pids_with
from tradewind.protocol import host as wire

WORKER = a_worker_of_this_process("w1")
LAST_WORDS = "these are the last words"
WAITS = "import time; print('waits', flush=True); time.sleep(600)"


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[WorkerFolder]:
    claimed = await claim(tmp_path / "run", "w1", WORKER)
    yield claimed
    claimed.remove()


class Life:
    """A running host, and its messages."""

    def __init__(
        self, folder: WorkerFolder, env: dict[str, str], *, python: str = sys.executable, file: str | None = None
    ):
        self.heard: list[wire.HostMessage] = []
        command = HostCommand(python, find_host_file(file), {**os.environ, WORKER_VARIABLE: WORKER, **env}, SECONDS)
        self.host = Host(command, folder, self.heard.append)
        self._running = asyncio.get_running_loop().create_task(self.host.run(), name="host")

    async def why(self) -> str:
        async with asyncio.timeout(SECONDS):
            return await self._running

    async def until(self, kind: type[wire.HostMessage]) -> None:
        def has_come() -> bool:
            if self._running.done():
                pytest.fail(f"the host ended before {kind.__name__}: {self._running.result()}")
            return any(isinstance(said, kind) for said in self.heard)

        await eventually(has_come, SECONDS, kind.__name__)

    def fork(self, script: Path, *ranks: int) -> None:
        trainers = tuple(
            wire.TrainerSpec(rank=Rank(rank), env=dict(os.environ), argv=(), cwd=str(script.parent), script=str(script))
            for rank in ranks
        )
        self.host.fork(Generation(1), trainers)


def _light(tmp_path: Path) -> dict[str, str]:
    return {"PYTHONPATH": light_torch(tmp_path / "light")}


def _script(tmp_path: Path) -> Path:
    (tmp_path / "waits.py").write_text(WAITS)
    return tmp_path / "waits.py"


async def test_an_interpreter_that_is_not_there_is_the_reason(folder: WorkerFolder) -> None:
    why = await Life(folder, {}, python="/no/such/python").why()
    assert "/no/such/python" in why and os.strerror(errno.ENOENT) in why


async def test_an_interpreter_that_can_be_no_path_is_the_reason(folder: WorkerFolder) -> None:
    why = await Life(folder, {}, python="/bin/a\0b").why()
    assert repr("/bin/a\0b") in why and "null byte" in why


async def test_an_interpreter_without_torch_is_the_reason(folder: WorkerFolder, tmp_path: Path) -> None:
    (tmp_path / "none" / "torch").mkdir(parents=True)
    (tmp_path / "none" / "torch" / "__init__.py").write_text(f"raise ImportError('{LAST_WORDS}')")
    why = await Life(folder, {"PYTHONPATH": str(tmp_path / "none")}).why()
    assert why.startswith(sys.executable) and "torch" in why and LAST_WORDS in why


async def test_a_host_that_ends_before_it_connects_says_its_last_words(folder: WorkerFolder, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(f"raise SystemExit('{LAST_WORDS}')")
    why = await Life(folder, {}, file=str(tmp_path / "broken.py")).why()
    assert why == how_it_exited(1, LAST_WORDS)


async def test_a_host_that_is_told_to_end_does(folder: WorkerFolder, tmp_path: Path) -> None:
    life = Life(folder, _light(tmp_path))
    await life.until(wire.Hello)
    life.fork(_script(tmp_path), 0)
    await life.until(wire.Output)
    await life.host.end()
    assert await life.why() == "exited with 0"
    assert folder.left.processes == ()
    assert pids_with(WORKER) == []


async def test_a_killed_host_leaves_no_trainer(folder: WorkerFolder, tmp_path: Path) -> None:
    life = Life(folder, _light(tmp_path))
    await life.until(wire.Hello)
    life.fork(_script(tmp_path), 0, 1)
    await eventually(lambda: len(folder.left.processes) == 3, SECONDS, "the host and two trainers are on record")
    os.kill(folder.left.processes[0].pid, signal.SIGKILL)
    assert await life.why() == how_it_exited(-signal.SIGKILL)
    assert pids_with(WORKER) == []
    assert folder.left.processes == ()


async def test_a_host_that_does_not_answer_a_stop_is_given_up(
    folder: WorkerFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_connection, "STOP_ANSWER_S", 0.2)
    life = Life(folder, _light(tmp_path))
    await life.until(wire.Hello)
    life.fork(_script(tmp_path), 0)
    await life.until(wire.Forked)
    os.kill(folder.left.processes[0].pid, signal.SIGSTOP)
    assert not await life.host.stop(Generation(1), 0.0)
    assert await life.why() == host_connection.stop_unanswered(0.2)
    assert pids_with(WORKER) == []


async def test_a_stop_is_answered_when_the_trainers_are_gone(folder: WorkerFolder, tmp_path: Path) -> None:
    life = Life(folder, _light(tmp_path))
    await life.until(wire.Hello)
    life.fork(_script(tmp_path), 0)
    await life.until(wire.Output)
    assert await life.host.stop(Generation(1), 2.0)
    exited = [said for said in life.heard if isinstance(said, wire.Exited)]
    assert [ended.signal for ended in exited] == ["SIGTERM"]
    assert await life.host.stop(Generation(1), 2.0)
    await life.host.end()
    await life.why()


async def test_trainers_of_a_refused_fork_count_as_not_forked(folder: WorkerFolder, tmp_path: Path) -> None:
    life = Life(folder, _light(tmp_path))
    await life.until(wire.Hello)
    nothing = wire.TrainerSpec(rank=Rank(0), env={}, argv=(), cwd=str(tmp_path))
    life.host.fork(Generation(1), (nothing,))
    await life.until(wire.ForkFailed)
    [failed] = [said for said in life.heard if isinstance(said, wire.ForkFailed)]
    assert (failed.generation, failed.rank) == (1, 0)
    assert "script" in failed.error
    await life.host.end()
    await life.why()


async def test_a_host_that_talks_nonsense_is_not_obeyed(folder: WorkerFolder, tmp_path: Path) -> None:
    (tmp_path / "babbles.py").write_text(
        "import socket, sys\n"
        "agent = socket.socket(socket.AF_UNIX)\n"
        "agent.connect(sys.argv[2])\n"
        'agent.sendall(b\'nonsense\\n{"type":"unheard-of"}\\n{"type":"forked"}\\n\')\n'
        "agent.sendall(b'x' * 5_000_000)\n"
    )
    life = Life(folder, {}, file=str(tmp_path / "babbles.py"))
    assert "limit" in await life.why(), "asyncio's reason, for the endless line"
    assert life.heard == []


async def test_a_folder_whose_name_is_too_long_for_a_socket_does_no_harm(tmp_path: Path) -> None:
    folder = await claim(tmp_path / ("deep" * 40), "w1", WORKER)
    life = Life(folder, _light(tmp_path))
    await life.until(wire.Hello)
    await life.host.end()
    assert await life.why() == "exited with 0"
    folder.remove()


def test_the_host_is_found_beside_the_agent_or_where_it_was_said_to_be(tmp_path: Path) -> None:
    assert find_host_file(None).parts[-3:] == ("tradewind", "host", "__main__.py")
    with pytest.raises(UserError, match="no host"):
        find_host_file(str(tmp_path / "nowhere.py"))
