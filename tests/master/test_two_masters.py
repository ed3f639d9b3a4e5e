"""Two real masters on one bus: one leads, the other waits and takes over, and no worker notices."""

import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from messages.ids import JobName
from messages.worlds import Assignment, Halt, Release
from runtime.nats_server import NatsServer
from tests.conftest import eventual_answer
from tests.master.fleet import FakeFleet, fake_fleet
from tests.master.process import Api, MasterProcess, a_spec, running_master


@dataclass
class Pair:
    leader: MasterProcess
    leading: Api
    standby: MasterProcess
    waiting: Api
    fleet: FakeFleet

    async def until_leads(self, api: Api) -> int:
        """Waits until it leads; returns its epoch."""
        _, version = await eventual_answer(lambda: answer(api, "/version"), lambda got: got[0] == 200, "to lead")
        return int(version["epoch"])

    async def until_stands_by(self, api: Api) -> None:
        await eventual_answer(
            lambda: answer(api, "/healthz"), lambda got: got[1].get("role") == "standby", "to stand by"
        )


async def answer(api: Api, path: str) -> tuple[int, dict[str, Any]]:
    try:
        return await api.ask("GET", path)
    except OSError:
        return 0, {}


@pytest.fixture
async def pair(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Pair]:
    async with (
        running_master(nats_server.url, tmp_path) as (leader, leading),
        fake_fleet(nats_server.url) as fleet,
    ):
        await leading.version()
        async with running_master(nats_server.url, tmp_path) as (standby, waiting):
            yield Pair(leader, leading, standby, waiting, fleet)


async def test_a_standby_is_well_and_names_the_leader_to_the_one_that_asks(pair: Pair) -> None:
    status, health = await pair.waiting.ask("GET", "/healthz")
    assert (status, health["ok"], health["role"]) == (200, True, "standby")
    assert (await pair.leading.health()).role == "leader"
    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/version"), ("GET", "/nowhere")):
        async with pair.waiting.session.request(method, pair.waiting.url + path) as response:
            problem = await response.json()
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert problem["leader"] == pair.leading.url
        assert pair.leading.url in problem["error"]


async def test_when_the_leader_is_killed_the_standby_adopts_the_running_world(pair: Pair) -> None:
    job = JobName("handed")
    await pair.leading.submit(a_spec(job, 2, least=2))
    await pair.leading.until_phase(job, "running")
    epoch = (await pair.leading.version()).epoch
    before = {worker.status for worker in pair.fleet.of(job)}
    pair.leader.signal(signal.SIGKILL)
    assert await pair.until_leads(pair.waiting) > epoch
    view = await eventual_answer(
        lambda: pair.waiting.job(job),
        lambda view: [worker.presence for worker in view.workers] == ["alive", "alive"],
        "both workers to be seen",
    )
    assert (view.phase, view.generation) == ("running", 1)
    assert {worker.status for worker in pair.fleet.of(job)} == before
    assert pair.fleet.halts(job) == []
    pair.fleet.exit(job)
    await pair.waiting.until_phase(job, "succeeded")


async def test_a_leader_that_was_paused_comes_back_as_a_standby_and_does_no_harm(pair: Pair) -> None:
    job = JobName("paused")
    await pair.leading.submit(a_spec(job, 2, least=2))
    await pair.leading.until_phase(job, "running")
    pair.leader.signal(signal.SIGSTOP)
    epoch = await pair.until_leads(pair.waiting)
    heard = len(pair.fleet.heard)
    pair.fleet.vanish(pair.fleet.of(job)[0])
    pair.fleet.add(job)
    pair.leader.signal(signal.SIGCONT)
    await pair.until_stands_by(pair.leading)
    view = await eventual_answer(
        lambda: pair.waiting.job(job), lambda view: view.phase == "running" and view.generation >= 2, "a new world"
    )
    said = [(message, envelope) for message, envelope in pair.fleet.heard[heard:] if is_for_workers(message)]
    assert {envelope.epoch for _, envelope in said} == {epoch}
    _, problem = await pair.leading.ask("GET", "/v1/jobs")
    assert problem["leader"] == pair.waiting.url
    pair.standby.signal(signal.SIGKILL)
    assert await pair.until_leads(pair.leading) > epoch
    assert (await pair.leading.until_phase(job, "running")).generation == view.generation


async def test_a_leader_that_is_asked_to_end_hands_over_and_a_standby_ends_when_asked(pair: Pair) -> None:
    job = JobName("calm")
    await pair.leading.submit(a_spec(job, 1))
    await pair.leading.until_phase(job, "running")
    pair.leader.signal(signal.SIGTERM)
    assert await pair.leader.wait() == 0
    await pair.until_leads(pair.waiting)
    assert (await pair.waiting.until_phase(job, "running")).generation == 1
    await pair.leader.start()
    await pair.until_stands_by(pair.leading)
    pair.leader.signal(signal.SIGTERM)
    assert await pair.leader.wait() == 0
    assert (await pair.waiting.version()).epoch


def is_for_workers(message: object) -> bool:
    return isinstance(message, Assignment | Halt | Release)
