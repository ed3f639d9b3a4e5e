"""A real agent and host, with trainers that speak the SDK's side of the socket; the master is a fake."""

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path

import pytest
from msgspec import structs

from agents.worker.host import find_host_file
from agents.worker.trainer_socket import process_runs
from messages.ids import WorkerId
from messages.measured import StepsMeasured
from messages.workers import WorkerPeerLost, WorkerPhase
from messages.worlds import Assignment, Entry, LiveWorld
from runtime import children
from runtime.nats_server import NatsServer
from tests.conftest import eventually
from tests.light import light_torch
from tests.worker.builders import OTHER, a_member, an_assignment
from tests.worker.fakes import (
    NO_STORE,
    SECONDS,
    STALLED,
    Agent,
    FakeMaster,
    a_script,
    an_agent,
    an_agent_process,
    pids_with,
    settings_for,
)

OBEYS = """
import json, os, signal, socket, sys, time
env = os.environ
agent = socket.socket(socket.AF_UNIX)
agent.connect(env["TRADEWIND_TRAINER_SOCKET"])
with open(f"{env['LOCAL_RANK']}.pid", "w") as file:
    file.write(str(os.getpid()))
say = lambda **message: agent.sendall(json.dumps(message).encode() + b"\\n")
state = {"rank": 0, "generation": 0, "parked": 0, "done": 5, "active": "TRADEWIND_INVITED" not in env}
say(type="attach", generation=int(env["TRADEWIND_GENERATION"]), rank=int(env["TRADEWIND_RANK"]),
    local_rank=int(env["LOCAL_RANK"]), pid=os.getpid())
print(f"attached as {env['TRADEWIND_RANK']}, in a world of {env['WORLD_SIZE']}", flush=True)
def breaks(*_):
    state["broken"] = state["generation"]
    say(type="status", **state)
signal.signal(signal.SIGUSR1, breaks)
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(3))
for line in agent.makefile():
    word = json.loads(line)
    if word["type"] == "halt":
        while os.path.exists("busy"):
            time.sleep(0.01)
        state["parked"] = word["generation"]
    elif word["type"] == "assign" and word["leaves"]:
        state["parked"] = word["generation"]
    elif word["type"] == "assign":
        state.update(rank=word["rank"], generation=word["generation"])
        say(type="status", **state)
        print(f"rank {word['rank']} of {word['world_size']} by {word['entry']}", flush=True)
        say(type="progress", generation=word["generation"], rank=word["rank"],
            reports=[{"step": 5, "loss": 0.5, "samples": 4, "at": 1.0}],
            measured={"steps": 1, "samples": 4, "seconds": 0.5, "computed_s": 0.25, "waited_s": 0.125,
                      "gradient_bytes": 4096, "global_batch": 8})
        continue
    else:
        continue
    say(type="status", **state)
"""


def _world(generation: int, worker: WorkerId, launch: Path, *, entry: Entry | None, first_rank: int = 0) -> Assignment:
    """A world with two ranks of our worker, after `first_rank` ranks of a worker that does not exist."""
    others = (a_member(OTHER, 0, first_rank),) if first_rank else ()
    own = a_member(worker, first_rank, 2, group_rank=len(others))
    live = None if entry is None else LiveWorld(entry, tuple(range(first_rank + 2)), resume=5)
    return an_assignment(generation, *others, own, launch=a_script(launch, OBEYS), store=NO_STORE, live=live)


def _shown(master: FakeMaster, worker: WorkerId) -> list[tuple[int, int]]:
    return [(trainer.rank, trainer.generation) for trainer in master.statuses[worker].trainers]


async def _begin(master: FakeMaster, job: Path) -> WorkerId:
    """Starts the first world, and waits until its two trainers have attached."""
    [worker] = await master.workers()
    master.changes(_world(1, worker, job, entry=None))
    await eventually(lambda: _shown(master, worker) == [(0, 1), (1, 1)], SECONDS, "the first world")
    return worker


def _parking(master: FakeMaster, worker: WorkerId) -> list[int]:
    return [trainer.parking for trainer in master.statuses[worker].trainers]


@pytest.mark.usefixtures("without_torch")
async def test_trainers_live_through_a_halt_a_repair_and_a_planned_change(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    settings = settings_for(nats_server.url, tmp_path / "run", slots=2)
    async with an_agent_process(settings) as agent:
        job = tmp_path / "job"
        worker = await _begin(master, job)
        alive = pids_with(worker)
        assert len(alive) == 3

        master.halts(2)
        parked = await master.until(worker, WorkerPhase.PARKED, 2)
        assert [trainer.parked for trainer in parked.trainers] == [2, 2]
        master.changes(_world(2, worker, job, entry=Entry.REPAIR, first_rank=1))
        await master.until(worker, WorkerPhase.READY, 2)
        assert _shown(master, worker) == [(1, 2), (2, 2)]
        await master.until_lines(2, ["rank 2 of 3 by repair"])

        master.changes(_world(3, worker, job, entry=Entry.PLANNED))
        await master.until(worker, WorkerPhase.READY, 3)
        assert _shown(master, worker) == [(0, 3), (1, 3)]

        await eventually(lambda: {progress.generation for progress in master.progress} == {1, 2, 3}, SECONDS)
        sent = {rank.measured for progress in master.progress for rank in progress.ranks}
        assert sent == {StepsMeasured(1, 4, 0.5, 0.25, 0.125, 4096, 8)}
        assert sorted(pids_with(worker)) == sorted(alive)
        assert [fact for fact in master.sent(worker) if fact in ("parked", "switched")] == [
            "switched",
            "parked",
            "switched",
            "switched",
        ]
        master.releases(worker)
        async with asyncio.timeout(SECONDS):
            assert await agent.wait() == 0
    assert pids_with(worker) == []


@pytest.mark.usefixtures("without_torch")
async def test_trainers_that_are_slow_to_park_are_told_from_one_that_is_stopped(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent(nats_server.url, tmp_path / "run", slots=2):
        job = tmp_path / "job"
        worker = await _begin(master, job)

        (job / "busy").touch()
        master.halts(2)
        await eventually(lambda: master.sent(worker).count("parking") > 1, SECONDS)
        assert "parked" not in master.sent(worker)

        stopped = int((job / "1.pid").read_text())
        os.kill(stopped, signal.SIGSTOP)
        await eventually(lambda: _parking(master, worker) == [2, 0], SECONDS, "a heartbeat of the stopped trainer")
        os.kill(stopped, signal.SIGCONT)
        await eventually(lambda: _parking(master, worker) == [2, 2], SECONDS, "it runs again")
        (job / "busy").unlink()
        await master.until(worker, WorkerPhase.PARKED, 2)


def _located(master: FakeMaster, worker: WorkerId) -> list[int]:
    return [trainer.located for trainer in master.statuses[worker].trainers]


@pytest.mark.usefixtures("without_torch")
async def test_a_rank_that_runs_is_told_from_one_that_is_stopped_and_a_stalled_one_leaves_its_stack(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent(nats_server.url, tmp_path / "run", slots=2):
        job = tmp_path / "job"
        worker = await _begin(master, job)
        stopped = int((job / "1.pid").read_text())
        os.kill(stopped, signal.SIGSTOP)
        await eventually(lambda: not process_runs(stopped), SECONDS, "it is stopped")
        master.locates(41)
        await eventually(lambda: _located(master, worker) == [41, 0], SECONDS, "an answer")
        os.kill(stopped, signal.SIGCONT)
        await eventually(lambda: process_runs(stopped), SECONDS, "it is no longer stopped")
        master.locates(42)
        await eventually(lambda: _located(master, worker) == [42, 42], SECONDS, "it runs again")

        master.ends_stalled(1, 1)
        await eventually(lambda: bool(master.exits(worker)), SECONDS, "its exit")
        [ended] = master.exits(worker)
        assert (ended.rank, ended.signal, ended.stalled) == (1, "SIGKILL", STALLED)
        assert ended.error is not None and ", line" in ended.error and "train.py" in ended.error


@pytest.mark.usefixtures("without_torch")
async def test_a_broken_collective_and_an_exit_are_told_with_the_present_rank(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent(nats_server.url, tmp_path / "run", slots=2):
        job = tmp_path / "job"
        worker = await _begin(master, job)
        master.changes(_world(2, worker, job, entry=Entry.PLANNED, first_rank=1))
        await master.until(worker, WorkerPhase.READY, 2)

        trainer = int((job / "1.pid").read_text())
        os.kill(trainer, signal.SIGUSR1)
        await eventually(lambda: "peer_lost" in master.sent(worker), SECONDS)
        [lost] = [message for _, fact, message in master.facts if fact == "peer_lost"]
        assert isinstance(lost, WorkerPeerLost)
        assert lost.exit is None
        assert [status.broken for status in lost.status.trainers] == [0, 2]

        os.kill(trainer, signal.SIGUSR2)
        await eventually(lambda: bool(master.exits(worker)), SECONDS)
        assert [(ended.rank, ended.code) for ended in master.exits(worker)] == [(2, 3)]
        assert _shown(master, worker) == [(1, 2)]


@pytest.mark.usefixtures("without_torch")
async def test_an_invited_worker_warms_its_trainers_and_brings_them_into_a_planned_world(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent(nats_server.url, tmp_path / "run", slots=2):
        [worker] = await master.workers()
        job = tmp_path / "job"
        running = an_assignment(1, a_member(OTHER, 0, 3), launch=a_script(job, OBEYS), store=NO_STORE)
        master.changes(running)
        await master.until(worker, WorkerPhase.IDLE, 1)
        master.invites(running, worker)
        await eventually(lambda: "ready" in master.sent(worker), SECONDS)
        assert _shown(master, worker) == [(3, 0), (4, 0)]
        await master.until_lines(3, ["attached as 3, in a world of 1"])

        master.changes(_world(2, worker, job, entry=Entry.PLANNED, first_rank=3))
        await master.until(worker, WorkerPhase.READY, 2)
        assert _shown(master, worker) == [(3, 2), (4, 2)]

        leaving = an_assignment(
            3, a_member(OTHER, 0, 3), live=LiveWorld(Entry.PLANNED, (0, 1, 2), (worker,)), store=NO_STORE
        )
        master.changes(leaving)
        status = await master.until(worker, WorkerPhase.IDLE, 3)
        assert [trainer.parked for trainer in status.trainers] == [3, 3]


async def test_trainers_of_another_container_attach_too(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    run_dir, job = tmp_path / "run", tmp_path / "job"
    agent = Agent(structs.replace(settings_for(nats_server.url, run_dir, slots=2), external_host=True))
    job.mkdir()
    host = await children.start(
        (sys.executable, str(find_host_file(None)), "--socket", str(run_dir / "w1" / "host.sock"), "--wait-s", "60"),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": light_torch(tmp_path / "light")},
        cwd=job,
        dies_with_us=True,
    )
    try:
        await _begin(master, job)
        socket = run_dir / "w1" / "trainers.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o666
    finally:
        await agent.end()
        await children.end(host, 5.0)


@pytest.mark.usefixtures("without_torch")
async def test_a_world_of_new_processes_ends_the_trainers_that_are_attached(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent(nats_server.url, tmp_path / "run", slots=2):
        worker = await _begin(master, tmp_path / "job")
        before = set(pids_with(worker))
        master.changes(_world(2, worker, tmp_path / "job", entry=None))
        await eventually(lambda: _shown(master, worker) == [(0, 2), (1, 2)], SECONDS, "the second world")
        assert len(before & set(pids_with(worker))) == 1
