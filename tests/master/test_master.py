"""A real master process over a real NATS server, with workers that exist on the bus only."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from msgspec import structs

from controlplane.job import texts
from controlplane.jobs.errors import BUS_AWAY, JobExists, JobUnreadable, has_ended
from controlplane.jobs.records import read_whole_record
from messages import subjects
from messages.clusters import KeepWorkers
from messages.codec import MAX_BYTES
from messages.criteria import Capacity
from messages.ids import ClusterName, Epoch, Generation, JobName, Rank, WorkerId
from messages.records import Phase, encode_record
from messages.workers import TrainerExit, WorkerJoined, WorkerParked, WorkerPhase, WorkerStatus
from messages.worlds import Assignment, GatheredProgress, Halt, Progress, RankProgress
from runtime.bus import Bucket, Bus
from runtime.nats_server import NatsServer
from runtime.settings import BusSettings
from tests.conftest import eventual_answer, eventually
from tests.master.fleet import FakeFleet, fake_fleet
from tests.master.process import Api, MasterProcess, a_spec, running_master

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Setup:
    def __init__(self, server: NatsServer, folder: Path, master: MasterProcess, api: Api, fleet: FakeFleet) -> None:
        self.server = server
        self.folder = folder
        self.master = master
        self.api = api
        self.fleet = fleet

    async def run(self, name: str, workers: int = 2, *, failures: int = 0) -> JobName:
        """A job that is running."""
        await self.api.submit(a_spec(name, workers, least=workers, failures=failures))
        await self.api.until_phase(name, "running")
        return JobName(name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def setup(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setup]:
    folder = tmp_path_factory.mktemp("master")
    async with (
        NatsServer(folder / "nats") as server,
        running_master(server.url, folder) as (master, api),
        fake_fleet(server.url) as fleet,
    ):
        yield Setup(server, folder, master, api, fleet)


async def test_a_job_runs_from_submission_to_success(setup: Setup) -> None:
    view = await setup.api.submit(a_spec("whole", 3, least=3))
    assert (view.name, view.phase, view.wanted) == ("whole", "waiting", 3)
    running = await setup.api.until_phase("whole", "running")
    assert (running.generation, running.world_size) == (1, 3)
    assert [worker.ranks for worker in running.workers] == [(0,), (1,), (2,)]
    [first, *_] = setup.fleet.assignments(JobName("whole"))
    assert first.store.host == "127.0.0.1"
    assert await accepts(first.store.port)
    setup.fleet.report(JobName("whole"), step=7, loss=0.5)
    shown = await eventual_answer(lambda: setup.api.job("whole"), lambda view: view.step == 7, "the step to be shown")
    assert (shown.loss, [worker.step for worker in shown.workers]) == (0.5, [7, 7, 7])
    setup.fleet.exit(JobName("whole"))
    assert (await setup.api.until_phase("whole", "succeeded")).why == texts.all_exited(3)
    await eventually(lambda: not setup.fleet.of(JobName("whole")), what="all workers to be released")
    kinds = await setup.api.kinds("whole")
    assert kinds[0] == "job_submitted"
    assert "job_succeeded" in kinds
    assert {"worker_joined", "world_decided", "world_running"} < set(kinds)


async def test_a_size_that_the_job_does_not_allow_is_refused_with_those_that_it_does(setup: Setup) -> None:
    spec = a_spec("sizes", 4)
    await setup.api.submit(structs.replace(spec, workers=structs.replace(spec.workers, allowed=(2, 4))))
    status, problem = await setup.api.ask("POST", "/v1/jobs/sizes/scale", {"workers": 3})
    assert status == 409
    assert "2, 4 workers" in problem["error"] and "workers.allowed" in problem["error"]
    assert problem["hint"].split() == ["tradewind", "scale", "sizes", "2"]
    status, view = await setup.api.ask("POST", "/v1/jobs/sizes/scale", {"workers": 2})
    assert (status, view["wanted"]) == (200, 2)


async def test_a_script_that_repeats_steps_after_a_restart_is_told_and_warned_of_while_it_does(setup: Setup) -> None:
    job = await setup.run("again", 2, failures=1)
    for step in (0, 56):
        setup.fleet.report(job, step=step, loss=0.5)
    await eventual_answer(lambda: setup.api.job(job), lambda view: view.step == 56, "the step to be shown")
    assert (await setup.api.job(job)).warning == ""
    setup.fleet.exit(job, code=1)
    await eventual_answer(lambda: setup.api.job(job), lambda view: view.generation > 1, "another generation")
    await setup.api.until_phase(job, "running")
    setup.fleet.report(job, step=0, loss=0.5)
    shown = await eventual_answer(lambda: setup.api.job(job), lambda view: view.step == 0, "the step to be shown")
    assert "step 0 " in shown.warning and "57 steps" in shown.warning
    setup.fleet.report(job, step=57, loss=0.5)
    await eventual_answer(lambda: setup.api.job(job), lambda view: view.step == 57, "the step to be shown")
    assert (await setup.api.job(job)).warning == ""
    assert (await setup.api.kinds(job)).count("progress_fell_back") == 1


async def test_what_a_master_without_a_fleet_cannot_heed_is_told(setup: Setup) -> None:
    await setup.api.submit(structs.replace(a_spec("planned", 1), capacity=Capacity(max_usd_per_hour=1.0)))
    kinds = await eventual_answer(
        lambda: setup.api.kinds("planned"), lambda kinds: "capacity_ignored" in kinds, "the event to be told"
    )
    assert kinds[:2] == ["job_submitted", "capacity_ignored"]


async def test_every_word_of_the_master_carries_its_epoch(setup: Setup) -> None:
    job = await setup.run("epochs")
    epoch = (await setup.api.version()).epoch
    said = [envelope.epoch for message, envelope in setup.fleet.heard if getattr(message, "job", None) == job]
    assert said
    assert set(said) == {epoch}


async def test_a_forged_fact_is_ignored_and_the_job_continues(setup: Setup) -> None:
    job, absurd = await setup.run("forged"), Generation(2**53)
    worker = setup.fleet.of(job)[0].status
    forged = structs.replace(worker, seq=worker.seq + 1, phase=WorkerPhase.PARKED, generation=absurd)
    subject = subjects.worker_fact(worker.cluster, worker.worker, "parked")
    setup.fleet.bus.publish(subject, WorkerParked(forged))
    steps = RankProgress(Rank(0), 1, 2**53)
    report = Progress(job, worker.worker, absurd, (steps,))
    setup.fleet.bus.publish(subjects.progress(job), GatheredProgress(job, worker.cluster, (report,)))
    await eventual_answer(setup.api.health, lambda seen: seen.dropped.get("doubted", 0) >= 2, "both to be counted")
    kinds = await eventual_answer(
        lambda: setup.api.kinds("forged"), lambda kinds: "message_ignored" in kinds, "it to be announced"
    )
    assert kinds.count("message_ignored") == 1
    setup.fleet.report(job, step=7, loss=0.5)
    await eventual_answer(lambda: setup.api.job("forged"), lambda view: view.step == 7, "honest progress to be shown")
    setup.fleet.vanish(setup.fleet.of(job)[1])
    await eventual_answer(lambda: setup.api.job("forged"), lambda view: view.generation == 2, "the next generation")
    setup.fleet.exit(job)


async def test_what_late_workers_need_is_in_kv(setup: Setup) -> None:
    job = await setup.run("late", 1)
    async with a_bucket(setup) as bucket:
        entry = await bucket.get(subjects.record_key(job))
    assert entry is not None
    stored = msgspec.json.decode(entry.value)
    assert (stored["assignment"]["generation"], stored["halted"]) == (1, 1)
    assert stored["epoch"] == (await setup.api.version()).epoch


async def test_a_second_job_of_the_same_name_is_refused_also_when_the_first_has_ended(setup: Setup) -> None:
    await setup.run("twice", 1)
    for _ in range(2):
        status, problem = await setup.api.ask("POST", "/v1/jobs", a_spec("twice"))
        assert status == 409
        assert (problem["error"], problem["hint"]) == (JobExists("twice").message, JobExists("twice").hint)
        setup.fleet.exit(JobName("twice"))
        await setup.api.until_phase("twice", "succeeded")


async def test_of_two_submissions_at_once_one_is_taken(setup: Setup) -> None:
    answers = await asyncio.gather(*(setup.api.ask("POST", "/v1/jobs", a_spec("race")) for _ in range(5)))
    assert sorted(status for status, _ in answers) == [201, 409, 409, 409, 409]


async def test_a_job_is_scaled_within_its_limits_and_stopped(setup: Setup) -> None:
    await setup.api.submit(a_spec("scaled", 3))
    await setup.api.until_phase("scaled", "running")
    status, view = await setup.api.ask("POST", "/v1/jobs/scaled/scale", {"workers": 2})
    assert (status, view["wanted"]) == (200, 2)
    await eventual_answer(lambda: setup.api.job("scaled"), lambda view: view.world_size == 2, "a world of 2")
    for workers in (0, 4):
        status, problem = await setup.api.ask("POST", "/v1/jobs/scaled/scale", {"workers": workers})
        assert status == 409
        assert "1 to 3 workers" in problem["error"]
    status, _ = await setup.api.ask("POST", "/v1/jobs/scaled/stop")
    assert status == 200
    await setup.api.until_phase("scaled", "stopped")
    status, problem = await setup.api.ask("POST", "/v1/jobs/scaled/scale", {"workers": 2})
    assert (status, problem["error"]) == (409, has_ended("scaled", "stopped"))
    status, view = await setup.api.ask("POST", "/v1/jobs/scaled/stop")
    assert (status, view["phase"]) == (200, "stopped")


async def test_without_the_sdk_a_reload_starts_all_trainers_again(setup: Setup) -> None:
    await setup.run("reloaded", 2)
    status, view = await setup.api.ask("POST", "/v1/jobs/reloaded/reload")
    assert (status, view["outdated"]) == (200, 2)
    await eventual_answer(
        lambda: setup.api.job("reloaded"), lambda view: view.phase == "running" and view.generation == 2, "a new world"
    )
    assert (await setup.api.job("reloaded")).outdated == 0
    kinds = [event["kind"] for event in await setup.api.lines("/v1/jobs/reloaded/events")]
    assert {"job_reloading", "job_reloaded"} <= set(kinds)
    await setup.api.ask("POST", "/v1/jobs/reloaded/stop")
    await setup.api.until_phase("reloaded", "stopped")
    status, problem = await setup.api.ask("POST", "/v1/jobs/reloaded/reload")
    assert (status, problem["error"]) == (409, has_ended("reloaded", "stopped"))


async def test_a_script_that_fails_ends_the_job_with_its_reason_and_its_last_words(setup: Setup) -> None:
    job = await setup.run("failing", 1)
    setup.fleet.exit(job, code=1, tail=("Traceback", "ValueError: no"))
    ended = TrainerExit(Rank(0), code=1)
    assert texts.describe_exit(ended) in (await setup.api.until_phase("failing", "failed")).why
    [last] = [event for event in await setup.api.lines("/v1/jobs/failing/events") if event["kind"] == "job_failed"]
    assert "ValueError: no" in last["why"]


async def test_a_lost_worker_makes_a_new_world(setup: Setup) -> None:
    job = await setup.run("lossy", 2)
    setup.fleet.vanish(setup.fleet.of(job)[0])
    setup.fleet.add(job)
    view = await eventual_answer(
        lambda: setup.api.job("lossy"), lambda view: view.phase == "running" and view.generation >= 2, "a new world"
    )
    assert (view.losses, view.failures, view.world_size) == (1, 0, 2)
    assert setup.fleet.assignments(job)[0].store.port != setup.fleet.assignments(job)[-1].store.port


async def test_bad_payloads_on_every_subject_are_counted_and_dropped(setup: Setup) -> None:
    job = await setup.run("pelted", 1)
    bus = await Bus.connect(BusSettings(url=setup.server.url, name="vandal"))
    before = (await setup.api.health()).dropped
    status = WorkerStatus(WorkerId("w9-0000"), ClusterName("local"), job, 99, WorkerPhase.IDLE)
    bus.publish(subjects.worker_fact(ClusterName("local"), WorkerId("w8-0000"), "ready"), WorkerJoined(status))
    bus.publish(subjects.progress(job), Halt(job, Generation(99), "", 1.0))
    stranger = WorkerStatus(WorkerId("w7-0000"), ClusterName("local"), JobName("nobody"), 1, WorkerPhase.IDLE)
    bus.publish(subjects.worker_fact(ClusterName("local"), WorkerId("w7-0000"), "joined"), WorkerJoined(stranger))
    heard = [subjects.worker_fact(ClusterName("local"), WorkerId("w1"), fact) for fact in subjects.WORKER_FACTS]
    heard += [subjects.cluster_heartbeat(ClusterName("local")), subjects.progress(job)]
    for subject in heard:
        await publish_raw(setup.server, subject, b"{not json")
        await publish_raw(
            setup.server,
            subject,
            b'{"v":1,"kind":"no.such","at":"2026-01-01T00:00:00Z","sender":"x","id":"1","body":{}}',
        )
        await publish_raw(setup.server, subject, b'{"v":99}')
        await publish_raw(setup.server, subject, b"x" * (MAX_BYTES + 1))
    expected = {
        "malformed": len(heard),
        "unknown_kind": len(heard),
        "newer_version": len(heard),
        "oversized": len(heard),
        "subject_mismatch": 1,
        "unexpected_kind": 1,
        "unknown_job": 1,
    }

    async def counted() -> dict[str, int]:
        dropped = (await setup.api.health()).dropped
        return {reason: dropped.get(reason, 0) - before.get(reason, 0) for reason in expected}

    counts = await eventual_answer(counted, lambda found: found == expected, "all to be counted")
    assert counts == expected
    assert (await setup.api.job("pelted")).phase == "running"
    await bus.close()


async def test_a_job_that_appears_in_kv_is_adopted(setup: Setup) -> None:
    """The record was written by an ending master after this one had read the jobs."""
    async with a_bucket(setup) as bucket:
        await bucket.create(subjects.spec_key(JobName("found")), msgspec.json.encode(a_spec("found", 1)))
        await bucket.create(subjects.spec_key(JobName("garbage")), b"{}")
    await eventual_answer(lambda: setup.api.ask("GET", "/v1/jobs/found"), lambda answer: answer[0] == 200, "the job")
    await setup.api.until_phase("found", "running")
    status, problem = await setup.api.ask("GET", "/v1/jobs/garbage")
    assert (status, "'garbage'" in problem["error"]) == (409, True)
    assert problem["hint"] == JobUnreadable("garbage", "").hint


async def test_a_last_word_of_the_master_before_is_adopted(setup: Setup) -> None:
    job = await setup.run("contested", 1)
    async with a_bucket(setup) as bucket:
        world = await read_whole_record(bucket, job)
        assert world is not None
        theirs = structs.replace(
            world.record, epoch=Epoch(world.record.epoch - 1), generation=Generation(9), phase=Phase.RESHAPING
        )
        await bucket.put(subjects.record_key(job), encode_record(theirs))
    setup.fleet.vanish(setup.fleet.of(job)[0])
    setup.fleet.add(job)
    view = await eventual_answer(
        lambda: setup.api.job("contested"), lambda view: view.phase == "running" and view.generation > 1, "a new world"
    )
    assert view.generation >= 9


async def test_logs_are_read_by_rank_and_by_tail(setup: Setup) -> None:
    job = await setup.run("chatty", 1)
    await setup.fleet.log(job, 0, ("one", "two"))
    await setup.fleet.log(job, 1, ("three",), stderr=True)
    await setup.fleet.log(job, 0, ("four",))
    lines = await setup.api.lines("/v1/jobs/chatty/logs")
    assert [(line["rank"], line["line"]) for line in lines] == [(0, "one"), (0, "two"), (1, "three"), (0, "four")]
    assert [line["line"] for line in await setup.api.lines("/v1/jobs/chatty/logs?rank=0&tail=2")] == ["two", "four"]
    assert lines[2]["stderr"] is True
    setup.fleet.exit(job)
    followed = await setup.api.lines("/v1/jobs/chatty/logs?follow=1&tail=1")
    assert [line["line"] for line in followed] == ["four"]


async def test_followers_see_events_until_the_last_and_progress_as_it_comes(setup: Setup) -> None:
    job = await setup.run("watched", 1)
    progress: list[dict[str, Any]] = []
    last = 0

    async def report() -> bool:
        nonlocal last
        last += 1
        setup.fleet.report(job, last, 1.0 / last)
        return len(progress) > 5

    async with asyncio.TaskGroup() as tasks:
        events = tasks.create_task(setup.api.lines("/v1/jobs/watched/events?follow=1"), name="events")
        tasks.create_task(setup.api.lines("/v1/jobs/watched/progress?follow=1", progress), name="progress")
        await eventual_answer(report, bool, "the progress to be followed")
        setup.fleet.exit(job)
    last_event = events.result()[-1]
    assert last_event["kind"] == "job_succeeded"
    assert last_event["caused_by"].partition(" ")[0] == "worker.exited", "the message that ended it"
    steps = [line["ranks"][0]["last_step"] for line in progress]
    assert steps == list(range(steps[0], last + 1))
    [summary] = await setup.api.lines("/v1/jobs/watched/progress?summary=1")
    assert (summary["generation"], summary["first_step"], summary["last_step"]) == (1, 1, last)


async def test_the_fleets_events_tell_of_masters_and_clusters(setup: Setup) -> None:
    fleet = [event["kind"] for event in await setup.api.lines("/v1/events") if event["scope"] == "fleet"]
    assert fleet[:2] == ["master_started", "cluster_seen"]


async def test_a_killed_bus_loses_nothing(setup: Setup) -> None:
    job = await setup.run("bereft", 2)
    await setup.server.kill()
    status, health = await eventual_answer(
        lambda: setup.api.ask("GET", "/healthz"), lambda answer: answer[0] == 503, "the health to be bad"
    )
    assert (health["ok"], health["why"]) == (False, BUS_AWAY)
    setup.fleet.exit(job)
    await eventual_answer(
        lambda: setup.api.ask("GET", "/v1/jobs/bereft"), lambda answer: answer[0] == 503, "the lease to be over"
    )
    await setup.server.start()
    await setup.api.until_phase("bereft", "succeeded")
    kinds = await setup.api.lines("/v1/jobs/bereft/events?follow=1")
    assert kinds[-1]["kind"] == "job_succeeded"
    assert (await setup.api.job("bereft")).generation == 1
    status, _ = await setup.api.ask("GET", "/healthz")
    assert status == 200


async def test_a_master_that_was_killed_is_replaced_and_the_next_one_adopts_the_running_world(setup: Setup) -> None:
    job = await setup.run("orphan", 2)
    epoch = (await setup.api.version()).epoch
    statuses = {worker.status for worker in setup.fleet.of(job)}
    port = setup.fleet.assignments(job)[-1].store.port
    await setup.master.kill()
    await eventual_answer(lambda: accepts(port), lambda open_: not open_, "the store to end with its master")
    await setup.master.start()
    await eventual_answer(lambda: answers_as_new(setup.api, epoch), bool, "the next master to answer")
    assert (await setup.api.job("whole")).phase == "succeeded"
    view = await setup.api.until_phase("orphan", "running")
    assert view.generation == 1
    await eventual_answer(
        lambda: setup.api.job("orphan"),
        lambda view: [worker.presence for worker in view.workers] == ["alive", "alive"],
        "both workers to be seen",
    )
    await setup.fleet.until_beats(5)
    assert {worker.status for worker in setup.fleet.of(job)} == statuses
    assert setup.fleet.halts(job) == []
    assert (await setup.api.job("orphan")).generation == 1
    setup.fleet.exit(job)
    await setup.api.until_phase("orphan", "succeeded")


async def test_a_worker_of_a_job_that_ended_under_another_master_is_released(setup: Setup) -> None:
    assert (await setup.api.job("whole")).phase == "succeeded"
    setup.fleet.add(JobName("whole"))
    await eventually(lambda: not setup.fleet.of(JobName("whole")), what="the worker to be released")


async def test_a_master_that_is_asked_to_end_leaves_the_jobs_running(setup: Setup) -> None:
    job = await setup.run("calm", 1)
    epoch = (await setup.api.version()).epoch
    said_before = len(setup.fleet.heard)
    reported: list[dict[str, Any]] = []
    follower = asyncio.create_task(setup.api.lines("/v1/jobs/calm/events?follow=1", reported), name="follower")
    await eventually(lambda: reported and reported[-1]["kind"] == "world_running", what="all that happened to be told")
    setup.master.signal(signal.SIGTERM)
    assert await setup.master.wait() == 0
    assert (await follower)[-1]["kind"] == "world_running"
    said = [said for said, _ in setup.fleet.heard[said_before:] if getattr(said, "job", None) == job]
    assert all(isinstance(each, Assignment | KeepWorkers) for each in said)
    await setup.master.start()
    await eventual_answer(lambda: answers_as_new(setup.api, epoch), bool, "the next master to answer")
    assert (await setup.api.until_phase("calm", "running")).generation == 1
    fleet = [event["kind"] for event in await setup.api.lines("/v1/events") if event["scope"] == "fleet"]
    assert fleet.count("master_stopped") == 1
    setup.fleet.exit(job)
    await setup.api.until_phase("calm", "succeeded")


@contextlib.asynccontextmanager
async def a_bucket(setup: Setup) -> AsyncIterator[Bucket]:
    bus = await Bus.connect(BusSettings(url=setup.server.url, name="other"))
    try:
        yield await bus.bucket(subjects.STATE_BUCKET)
    finally:
        await bus.close()


async def answers_as_new(api: Api, old_epoch: int) -> bool:
    try:
        status, version = await api.ask("GET", "/version")
    except OSError:
        return False
    return status == 200 and version["epoch"] > old_epoch


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def publish_raw(server: NatsServer, subject: str, payload: bytes) -> None:
    """Publishes bytes as any client of the NATS server can."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await reader.readline()
    writer.write(
        b'CONNECT {"verbose":false}\r\nPUB %s %d\r\n%s\r\nPING\r\n' % (subject.encode(), len(payload), payload)
    )
    async with asyncio.timeout(10):
        while (await reader.readline()).strip() != b"PONG":
            pass
    writer.close()


async def test_the_oldest_ended_jobs_are_forgotten_and_their_names_are_free_again(tmp_path: Path) -> None:
    async with (
        NatsServer(tmp_path / "nats") as server,
        running_master(server.url, tmp_path, TRADEWIND_KEEP_JOBS="1") as (_, api),
    ):
        for name in ("first", "second", "third"):
            await api.submit(a_spec(name, 1))
            await api.ask("POST", f"/v1/jobs/{name}/stop")
            await api.until_phase(name, "stopped")
        await api.submit(a_spec("first", 1))
        _, listed = await api.ask("GET", "/v1/jobs")
        assert [job["name"] for job in listed["jobs"]] == ["first", "third"]
