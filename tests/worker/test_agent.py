"""A real agent with a real host on a real bus; only the master is a fake."""

import os
import signal
from pathlib import Path

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from agents.worker.host import how_it_exited
from agents.worker.learn import host_lost
from messages import subjects
from messages.clusters import Answer
from messages.workers import StopWorker, WorkerNoticed, WorkerPhase
from runtime import children
from runtime.nats_server import NatsServer
from tests.conftest import eventually
from tests.worker.builders import JOB, LOCAL
from tests.worker.fakes import (
    NO_STORE,
    SECONDS,
    SUBMITTED_AT,
    FakeMaster,
    a_script,
    a_store,
    an_agent,
    pids_with,
    raw_publish,
)

TRAINS = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
import tradewind
for step in range(3):
    tradewind.report(step, loss=0.5, samples=4)
print(f"rank={dist.get_rank()} size={dist.get_world_size()} total={int(total)}")
print("to stderr", file=sys.stderr)
dist.destroy_process_group()
"""
WAITS = """
import time
print("waits", flush=True)
time.sleep(600)
"""
ERROR = "this script cannot work"
FAILS = f"""
raise ValueError("{ERROR}")
"""
CLEAN_ON_SIGTERM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("waits", flush=True)
time.sleep(600)
"""


async def test_a_script_that_fails_is_told_and_one_that_works_trains_in_the_next_generation(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent(nats_server.url, tmp_path / "run", slots=2) as agent, a_store() as store:
        [worker] = await master.workers()
        master.assigns(1, worker, launch=a_script(tmp_path / "job", FAILS), store=NO_STORE)
        await master.until(worker, WorkerPhase.ENDED, 1)
        assert [(ended.code, ended.peer_lost) for ended in master.exits(worker)] == [(1, False), (1, False)]
        assert master.exits(worker)[0].tail[-1] == f"ValueError: {ERROR}"

        master.halts(2)
        assert (await master.until(worker, WorkerPhase.PARKED, 2)).exits == ()
        master.assigns(2, worker, launch=a_script(tmp_path / "job", TRAINS), store=store)
        await master.until(worker, WorkerPhase.ENDED, 2)
        assert sorted((ended.rank, ended.code) for ended in master.exits(worker)) == [(0, 0), (1, 0)]
        master.releases(worker)
        assert await agent.ended() == 0

    facts = master.sent(worker)
    assert facts[0] == "joined"
    assert facts[facts.index("parked") + 1] == "ready"
    assert facts.count("switched") == 1
    assert facts[-1] == "left"
    assert await master.lines(0) == ["rank=0 size=2 total=2"]
    assert await master.lines(1) == ["rank=1 size=2 total=2"]
    assert (await master.lines(1, stderr=True))[-1] == "to stderr"
    reported = [rank for progress in master.progress for rank in progress.ranks]
    assert sum(rank.samples for rank in reported) == 2 * 3 * 4
    assert pids_with(worker) == []


@pytest.mark.usefixtures("without_torch")
async def test_a_workdir_that_cannot_be_used_is_a_failure_in_one_line_and_the_agent_lives(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    (tmp_path / "circle").symlink_to("circle")
    folders = {f"{tmp_path}/circle": "Too many levels of symbolic links", "a\0b": "NUL", "~nosuchuser": "No such file"}
    async with an_agent(nats_server.url, tmp_path / "run"):
        [worker] = await master.workers()
        for generation, (folder, why) in enumerate(folders.items(), 1):
            launch = structs.replace(a_script(tmp_path / "job", FAILS), workdir=folder)
            master.halts(generation)
            master.assigns(generation, worker, launch=launch, store=NO_STORE)
            status = await master.until(worker, WorkerPhase.ENDED, generation)
            [ended] = status.exits
            said = [*ended.tail, *([ended.error] if ended.error else [])]
            assert (ended.code != 0, len(said), why in said[0]) == (True, 1, True), ended


@pytest.mark.usefixtures("without_torch")
async def test_a_halt_ends_running_trainers_and_what_they_say_at_their_end_does_not_count(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent(nats_server.url, tmp_path / "run"):
        [worker] = await master.workers()
        master.assigns(1, worker, launch=a_script(tmp_path / "job", CLEAN_ON_SIGTERM), store=NO_STORE)
        await master.until(worker, WorkerPhase.READY, 1)
        await master.until_lines(0, ["waits"])
        master.halts(2)
        status = await master.until(worker, WorkerPhase.PARKED, 2)
        assert status.exits == ()
        assert "exited" not in master.sent(worker)
        assert len(pids_with(worker)) == 1


@pytest.mark.usefixtures("without_torch")
async def test_a_host_that_is_killed_is_told_started_again_and_trains_again(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent(nats_server.url, tmp_path / "run", slots=2):
        [worker] = await master.workers()
        launch = a_script(tmp_path / "job", WAITS)
        master.assigns(1, worker, launch=launch, store=NO_STORE)
        await master.until(worker, WorkerPhase.READY, 1)
        [host] = [pid for pid in pids_with(worker) if children.parent_of(pid) == os.getpid()]
        os.kill(host, signal.SIGKILL)
        status = await master.until(worker, WorkerPhase.ENDED, 1)
        assert {ended.error for ended in status.exits} == {host_lost(how_it_exited(-signal.SIGKILL))}
        master.halts(2)
        await master.until(worker, WorkerPhase.PARKED, 2)
        master.assigns(2, worker, launch=launch, store=NO_STORE)
        await master.until(worker, WorkerPhase.READY, 2)
        assert len(pids_with(worker)) == 3


@pytest.mark.usefixtures("without_torch")
async def test_a_worker_that_comes_late_reads_the_world_from_the_record(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    await master.keeps(None, halted=7)
    async with an_agent(nats_server.url, tmp_path / "run"):
        await eventually(lambda: "joined" in _all_facts(master), SECONDS)
        [worker] = master.statuses
        status = await master.until(worker, WorkerPhase.PARKED, 7)
    assert status.submitted_at == SUBMITTED_AT, "it says which job of this name it belongs to"


@pytest.mark.usefixtures("without_torch")
async def test_a_signal_is_a_notice_and_the_worker_goes_when_it_is_released(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent(nats_server.url, tmp_path / "run") as agent:
        [worker] = await master.workers()
        master.assigns(1, worker, launch=a_script(tmp_path / "job", WAITS), store=NO_STORE)
        await master.until(worker, WorkerPhase.READY, 1)
        agent.stop.on_signal(signal.SIGTERM)
        await eventually(lambda: "notice" in master.sent(worker), SECONDS)
        [notice] = [message for _, fact, message in master.facts if fact == "notice"]
        assert isinstance(notice, WorkerNoticed)
        assert 0 < notice.remaining_s <= 15
        assert master.statuses[worker].phase is WorkerPhase.READY
        master.releases(worker)
        assert await agent.ended() == 0
    assert master.sent(worker)[-1] == "left"
    assert pids_with(worker) == []


@pytest.mark.usefixtures("without_torch")
async def test_a_second_signal_ends_it_at_once(nats_server: NatsServer, master: FakeMaster, tmp_path: Path) -> None:
    async with an_agent(nats_server.url, tmp_path / "run") as agent:
        [worker] = await master.workers()
        master.assigns(1, worker, launch=a_script(tmp_path / "job", WAITS), store=NO_STORE)
        await master.until(worker, WorkerPhase.READY, 1)
        agent.stop.on_signal(signal.SIGTERM)
        agent.stop.on_signal(signal.SIGTERM)
        assert await agent.ended() == 0
    assert pids_with(worker) == []


@pytest.mark.usefixtures("without_torch")
async def test_commands_are_answered(nats_server: NatsServer, master: FakeMaster, tmp_path: Path) -> None:
    async with an_agent(nats_server.url, tmp_path / "run") as agent:
        [worker] = await master.workers()
        command = subjects.worker_command(LOCAL, worker)
        refused = (await master.bus.request(command, Answer(ok=True), 5.0)).message
        assert isinstance(refused, Answer) and not refused.ok and "answer" in refused.why
        answer = (await master.bus.request(command, StopWorker("enough", 1.0), 5.0)).message
        assert answer == Answer(ok=True)
        assert await agent.ended() == 0


@pytest.mark.usefixtures("without_torch")
async def test_malformed_and_misaddressed_messages_change_nothing(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    with capture_logs() as logs:
        async with an_agent(nats_server.url, tmp_path / "run"):
            [worker] = await master.workers()
            command = subjects.worker_command(LOCAL, worker)
            for subject in (subjects.assignment(JOB), subjects.halt(JOB), subjects.release(JOB), command):
                for payload in (b"", b"\xff\x00", b"{}", b"[" * 10_000, b'{"v": 99}', b"x" * 950_000):
                    await raw_publish(nats_server.url, subject, payload)
            master.bus.publish(subjects.assignment(JOB), StopWorker("on the wrong subject"))
            refused = await master.bus.request(command, Answer(ok=True), SECONDS)
            assert isinstance(refused.message, Answer), "it still answers"
            assert master.statuses[worker].generation == 0
            master.assigns(1, worker, launch=a_script(tmp_path / "job", FAILS), store=NO_STORE)
            await master.until(worker, WorkerPhase.ENDED, 1)
    [total] = [log for log in logs if log["event"] == "dropped_total"]
    assert (total["misaddressed"], total["malformed"], total["newer_version"]) == (1, 16, 4)


def _all_facts(master: FakeMaster) -> list[str]:
    return [fact for _, fact, _ in master.facts]
