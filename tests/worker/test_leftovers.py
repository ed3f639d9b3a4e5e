"""No trainer outlives its agent: neither when the agent is killed, nor when its host cannot notice."""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from agents.worker import leftovers
from agents.worker.leftovers import RECORD, Left, ProcessId, claim, end_left
from messages.ids import WorkerId
from messages.jobs import Launch
from messages.workers import WorkerPhase
from runtime import children
from runtime.errors import UserError
from runtime.nats_server import NatsServer
from tests.conftest import eventually
from tests.worker.fakes import (
    NO_STORE,
    SECONDS,
    FakeMaster,
    a_script,
    a_worker_of_this_process,
    an_agent,
    an_agent_process,
    pids_with,
    settings_for,
)

WAITS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("waits", flush=True)
time.sleep(600)
"""
OWN = a_worker_of_this_process("w1")


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _inside(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


async def _trains(master: FakeMaster, launch: Launch) -> WorkerId:
    [worker] = await master.workers()
    master.assigns(1, worker, launch=launch, store=NO_STORE)
    await master.until(worker, WorkerPhase.READY, 1)
    await master.until_lines(0, ["waits"])
    return worker


@pytest.mark.usefixtures("without_torch")
async def test_when_an_agent_is_killed_its_host_ends_every_trainer_and_itself(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent_process(settings_for(nats_server.url, tmp_path / "run")) as agent:
        worker = await _trains(master, a_script(tmp_path / "job", WAITS))
        assert len(pids_with(worker)) == 3
        agent.kill()
        await eventually(lambda: not pids_with(worker), SECONDS, "nothing of the worker is left")


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("uid", ["w1", "w2"])
async def test_a_restarted_agent_ends_what_a_dead_one_left_behind(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path, uid: str
) -> None:
    async with an_agent_process(settings_for(nats_server.url, tmp_path / "run")) as agent:
        worker = await _trains(master, a_script(tmp_path / "job", WAITS))
        left = msgspec.json.decode((tmp_path / "run" / "w1" / RECORD).read_bytes(), type=Left)
        assert len(left.processes) == 2
        for process in left.processes:
            os.kill(process.pid, signal.SIGSTOP)
        agent.kill()
        await agent.wait()
        assert len(pids_with(worker)) == 3
        async with an_agent(nats_server.url, tmp_path / "run", uid=uid):
            await eventually(lambda: len(master.statuses) == 2, SECONDS, "the next agent has spoken")
            assert pids_with(worker) == []
            assert {name.partition("-")[0] for name in master.statuses} == {"w1", uid}


async def test_a_number_that_was_used_again_is_left_alone(tmp_path: Path) -> None:
    bystander = await children.start((sys.executable, "-c", "import time; time.sleep(600)"), dies_with_us=True)
    try:
        ticks = children.start_time_of(bystander.pid)
        assert ticks is not None
        boot = _boot()
        await end_left(Left(OWN, boot, (ProcessId(bystander.pid, ticks + 1),)))
        await end_left(Left(OWN, "another boot", (ProcessId(bystander.pid, ticks),)))
        assert children.start_time_of(bystander.pid) == ticks

        await end_left(Left(OWN, boot, (ProcessId(bystander.pid, ticks),)))
        assert await children.wait_exit(bystander.pid, SECONDS)
    finally:
        await children.end(bystander, 0.0)


async def test_two_agents_cannot_have_the_same_uid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "CLAIM_S", 0.1)
    folder = await claim(tmp_path, "w1", OWN)
    with pytest.raises(UserError, match="already running"):
        await claim(tmp_path, "w1", WorkerId("w1-bbbb"))
    folder.remove()
    again = await claim(tmp_path, "w1", WorkerId("w1-cccc"))
    again.remove()
    assert _inside(tmp_path) == []


async def test_agents_that_start_together_do_not_disturb_each_other(tmp_path: Path) -> None:
    folders = await asyncio.gather(*(claim(tmp_path, f"w{n}", WorkerId(f"w{n}-aaaa")) for n in range(8)))
    assert sorted(folder.path.name for folder in folders) == [f"w{n}" for n in range(8)]
    for folder in folders:
        folder.remove()


async def test_a_record_that_cannot_be_read_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "w0").mkdir()
    (tmp_path / "w0" / RECORD).write_text("{nonsense")
    folder = await claim(tmp_path, "w1", OWN)
    assert not (tmp_path / "w0").exists()
    folder.remove()


async def test_a_record_that_cannot_be_written_ends_no_training(tmp_path: Path) -> None:
    folder = await claim(tmp_path, "w1", OWN)
    shutil.rmtree(folder.path)
    folder.started(os.getpid())
    assert [process.pid for process in folder.left.processes] == [os.getpid()]
    folder.remove()
