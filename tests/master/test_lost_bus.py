"""The bus is killed and comes back without its data, while the master runs."""

import shutil
import signal
from pathlib import Path

import pytest

from messages import subjects
from messages.ids import JobName
from runtime.nats_server import NatsServer
from tests.conftest import eventual_answer
from tests.master.fleet import fake_fleet
from tests.master.process import Api, a_spec, running_master


async def test_a_master_leads_again_with_the_jobs_that_it_held(tmp_path: Path) -> None:
    async with (
        NatsServer(tmp_path / "nats") as server,
        running_master(server.url, tmp_path) as (master, api),
        fake_fleet(server.url) as fleet,
    ):
        await api.submit(a_spec("held", 2, least=2))
        await api.until_phase("held", "running")
        await server.kill()
        shutil.rmtree(server.folder)
        await server.start()
        await eventual_answer(lambda: fleet_events(api), lambda kinds: "master_started" in kinds, "a new term")
        view = await api.until_phase("held", "running")
        assert view.generation == 1
        fleet.exit(JobName("held"))
        await api.until_phase("held", "succeeded")
        assert "job_succeeded" in await api.kinds("held"), "events are kept again"
        await api.submit(a_spec("next", 1))
        await api.until_phase("next", "running")
        await master.kill()
        await master.start()
        names = await eventual_answer(lambda: job_names(api), bool, "the next master to answer")
        assert names == ["held", "next"]


@pytest.mark.slow
async def test_a_purge_of_the_bucket_costs_no_job(tmp_path: Path) -> None:
    async with (
        NatsServer(tmp_path / "nats") as server,
        running_master(server.url, tmp_path) as (master, api),
        fake_fleet(server.url) as fleet,
    ):
        for name in ("held", "ended"):
            await api.submit(a_spec(name, 1))
            await api.until_phase(name, "running")
        fleet.exit(JobName("ended"))
        await api.until_phase("ended", "succeeded")
        epoch = (await api.version()).epoch
        await fleet.bus._link.jetstream.purge_stream(f"KV_{subjects.STATE_BUCKET}")
        await eventual_answer(api.version, lambda seen: seen.epoch > epoch, "the master to notice the purge")
        assert (await api.until_phase("held", "running")).generation == 1
        await master.kill()
        await master.start()
        names = await eventual_answer(lambda: job_names(api), lambda names: len(names) == 2, "both to be adopted")
        assert sorted(names) == ["ended", "held"]
        assert (await api.until_phase("held", "running")).generation == 1
        fleet.exit(JobName("held"))
        await api.until_phase("held", "succeeded")


async def test_a_master_that_leads_there_by_now_gets_the_jobs_of_the_one_before(tmp_path: Path) -> None:
    async with (
        NatsServer(tmp_path / "nats") as server,
        running_master(server.url, tmp_path) as (master, api),
        fake_fleet(server.url),
    ):
        for name in ("held", "other"):
            await api.submit(a_spec(name, 1))
            await api.until_phase(name, "running")
        master.signal(signal.SIGSTOP)
        await server.kill()
        shutil.rmtree(server.folder)
        await server.start()
        async with running_master(server.url, tmp_path, TRADEWIND_LEASE_S="10") as (_, newer):
            await eventual_answer(newer.health, lambda seen: seen.ok and seen.role == "leader", "the newer one to lead")
            master.signal(signal.SIGCONT)
            await eventual_answer(lambda: job_names(newer), lambda names: len(names) == 2, "both jobs to be adopted")
            assert (await newer.until_phase("held", "running")).generation == 1


async def fleet_events(api: Api) -> list[str]:
    try:
        return [event["kind"] for event in await api.lines("/v1/events") if event["scope"] == "fleet"]
    except (OSError, AssertionError):
        return []


async def job_names(api: Api) -> list[str]:
    try:
        status, listed = await api.ask("GET", "/v1/jobs")
    except OSError:
        return []
    return [job["name"] for job in listed["jobs"]] if status == 200 else []
