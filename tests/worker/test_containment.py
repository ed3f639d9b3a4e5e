"""A process that clears its environment and leaves its session does not outlive its job."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from agents.worker.containment import Containment
from agents.worker.host import Host, HostCommand
from agents.worker.leftovers import RECORD, Left, claim, end_cgroups
from agents.worker.settings import WorkerSettings
from messages.ids import WorkerId
from messages.workers import WorkerPhase
from runtime import cgroups, children, proc
from runtime.nats_server import NatsServer
from tests.conftest import eventually
from tests.escaping import escape_source, escaped
from tests.worker.fakes import (
    NO_STORE,
    SECONDS,
    FakeMaster,
    a_script,
    a_worker_of_this_process,
    an_agent_process,
    settings_for,
)

pytestmark = pytest.mark.usefixtures("without_torch")


def can_make_cgroups() -> bool:
    tried = cgroups.create(f"tradewind-test-{os.getpid()}")
    if tried is not None:
        tried.remove()
    return tried is not None


@pytest.fixture
def may_make_cgroups() -> None:
    if not can_make_cgroups():
        pytest.skip("this process may not make a cgroup here")


def settings(nats: NatsServer, folder: Path, *, cgroup: bool) -> WorkerSettings:
    return msgspec.structs.replace(settings_for(nats.url, folder / "run"), cgroup=cgroup)


def is_there(cgroup: str) -> bool:
    return bool(cgroup) and Path(cgroup).exists()


async def trains(master: FakeMaster, folder: Path, escape: str) -> None:
    [worker] = await master.workers()
    source = escape_source(escape, 'print("waits", flush=True)\ntime.sleep(600)')
    master.assigns(1, worker, launch=a_script(folder / "job", source), store=NO_STORE)
    await master.until(worker, WorkerPhase.READY, 1)
    await master.until_lines(0, ["waits"])
    await eventually(lambda: escaped(escape), SECONDS, "it has escaped")


@pytest.mark.parametrize("cgroup", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_it_is_ended_with_the_worker(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path, escape: str, cgroup: bool
) -> None:
    async with an_agent_process(settings(nats_server, tmp_path, cgroup=cgroup)) as agent:
        await trains(master, tmp_path, escape)
        assert [children.parent_of(pid) for pid in escaped(escape)] == [agent.pid]
        made = msgspec.json.decode((tmp_path / "run" / "w1" / RECORD).read_bytes(), type=Left).cgroup
        assert bool(made) == (cgroup and can_make_cgroups())
        agent.send_signal(signal.SIGINT)
        assert await children.wait_exit(agent.pid, SECONDS)
        assert escaped(escape) == []
        assert not is_there(made)


async def test_what_a_lost_host_left_is_looked_for_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_in: list[threading.Thread] = []

    def look(pid: int) -> list[int]:
        looked_in.append(threading.current_thread())
        return []

    monkeypatch.setattr(children, "become_subreaper", lambda: None)
    monkeypatch.setattr(children, "alive_below", look)
    own = a_worker_of_this_process("w1")
    folder = await claim(tmp_path, "w1", own)
    folder.contain(Containment(own, use_cgroup=False))
    command = HostCommand(sys.executable, tmp_path / "no_such_host.py", {}, warm_s=SECONDS)
    assert "exited with 2" in await Host(command, folder, lambda event: None).run()
    assert looked_in and threading.current_thread() not in looked_in
    folder.remove()


CANCELLED = """
import os, subprocess, sys
from agents.worker.containment import Containment
cage = Containment("w8-aaaa", use_cgroup=False)
subprocess.Popen(["setsid", "-f", "sleep", sys.argv[1]]).wait()
cage.remove()
"""


def test_an_agent_that_was_cancelled_kills_what_escaped_when_it_exits(escape: str) -> None:
    subprocess.run([sys.executable, "-c", CANCELLED, escape], check=True)
    assert escaped(escape) == []


@pytest.mark.slow
@pytest.mark.usefixtures("may_make_cgroups")
async def test_it_is_ended_by_the_next_agent_if_this_one_is_killed(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path, escape: str
) -> None:
    async with an_agent_process(settings(nats_server, tmp_path, cgroup=True)) as agent:
        await trains(master, tmp_path, escape)
        agent.kill()
        assert await children.wait_exit(agent.pid, SECONDS)
        assert escaped(escape)
        folder = await claim(tmp_path / "run", "w2", a_worker_of_this_process("w2"))
        assert escaped(escape) == []
        folder.remove()


@pytest.mark.usefixtures("may_make_cgroups")
async def test_a_cgroup_is_ended_as_one_and_removed(tmp_path: Path, escape: str) -> None:
    made = cgroups.create(f"tradewind-w1-{os.getpid():x}.1")
    assert made is not None
    process = await children.start(("sleep", escape), dies_with_us=True)
    made.add(process.pid)
    folder = tmp_path / "w1"
    folder.mkdir()

    def leaves(worker: str) -> None:
        (folder / RECORD).write_bytes(
            msgspec.json.encode(Left(WorkerId(worker), proc.boot_id(), cgroup=str(made.path)))
        )

    leaves("another")
    end_cgroups(tmp_path)
    assert escaped(escape), "a record that names what is not the worker's own is not believed"
    leaves(f"w1-{os.getpid():x}")
    await asyncio.to_thread(end_cgroups, tmp_path)
    assert await process.wait() == -signal.SIGKILL
    assert not made.path.exists()
    made.end()


@pytest.mark.usefixtures("may_make_cgroups")
def test_empty_cgroups_of_dead_agents_are_removed_and_no_other() -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    made = [cgroups.create(f"tradewind-w9-{os.getpid():x}.{pid}") for pid in (int(dead.stdout), os.getpid())]
    mine = subprocess.run([sys.executable, "-c", CAGE], capture_output=True, check=True, text=True).stdout.strip()
    assert mine and not is_there(mine), "a cage that is removed takes its cgroup along"
    assert [each is not None and is_there(str(each.path)) for each in made] == [False, True]
    for each in made:
        assert each is not None
        each.end()


CAGE = """
from agents.worker.containment import Containment
cage = Containment("w8-aaaa", use_cgroup=True)
print(cage.path)
cage.remove()
"""
