"""The live jobs come from the master with the fleet, or from its records, and from no other source."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from controlplane.clouds.spec import Fleet
from controlplane.fleet.files import read_fleet
from controlplane.reaper.state import Claim
from messages import subjects
from messages.ids import ClusterName, JobName
from runtime.bus import Bus
from runtime.children import free_port
from runtime.errors import UserError
from runtime.nats_server import NatsServer
from tests.cli.builders import no_master
from tests.cli.fake_master import a_view
from tests.reaper.ground import a_master
from tests.reaper.test_reaper import a_record
from tradewind.cli.live_jobs import NobodyKnows, known_jobs

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet-simulator.yaml"
CLUSTER = ClusterName("sim-us")


@pytest.fixture
def fleet() -> Fleet:
    return read_fleet(EXAMPLE)


async def refusal(fleet: Fleet, environ: Mapping[str, str]) -> UserError:
    with pytest.raises(UserError) as caught:
        await known_jobs(fleet, environ)
    assert "--assume-no-jobs" in caught.value.hint
    return caught.value


async def test_a_master_that_has_the_fleet_is_believed(fleet: Fleet) -> None:
    jobs = (a_view("lives"), a_view("waits", "waiting"), a_view("over", "stopped"))
    async with a_master(*jobs, fleet=fleet.name) as master:
        known = await known_jobs(fleet, master.environ)
    assert known.claims == {"lives": Claim.LIVE, "waits": Claim.LIVE, "over": Claim.ENDED}
    assert known.master == master.environ["TRADEWIND_API_URL"]


@pytest.mark.parametrize("reported", ["another", "", None], ids=["another", "none", "untold"])
async def test_a_master_that_does_not_tell_that_it_has_this_fleet_is_not(fleet: Fleet, reported: str | None) -> None:
    async with a_master(a_view("lives"), fleet=reported) as master:
        refused = await refusal(fleet, {**master.environ, "TRADEWIND_NATS_URL": "nats://127.0.0.1:1"})
    assert fleet.name in refused.message and master.environ["TRADEWIND_API_URL"] in refused.message
    assert not isinstance(refused, NobodyKnows)


async def test_without_a_master_the_records_on_its_bus_are_read(
    fleet: Fleet, bus: Bus, nats_server: NatsServer
) -> None:
    environ = {**no_master(), "TRADEWIND_NATS_URL": nats_server.url}
    stranger = await refusal(fleet, environ)
    assert fleet.name in stranger.message and nats_server.url in stranger.message
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    await bucket.put(subjects.known_key(CLUSTER), b"{}")
    for job, phase in (("lives", "running"), ("over", "failed")):
        await bucket.put(subjects.spec_key(JobName(job)), b"{}")
        await bucket.put(subjects.record_key(JobName(job)), a_record(phase))
    known = await known_jobs(fleet, environ)
    assert known.claims == {"lives": Claim.LIVE, "over": Claim.ENDED}
    assert (known.master, known.source.split()[-1]) == ("", nats_server.url)


async def test_a_master_tells_of_jobs_whose_records_it_cannot_read_and_they_are_not_taken_for_unknown(
    fleet: Fleet,
) -> None:
    async with a_master(a_view("lives"), fleet=fleet.name, unread=["broken"]) as master:
        known = await known_jobs(fleet, master.environ)
    assert known.claims == {"lives": Claim.LIVE, "broken": Claim.UNREADABLE}


async def test_a_bus_that_nobody_named_is_not_looked_for(fleet: Fleet) -> None:
    refused = await refusal(fleet, no_master())
    assert isinstance(refused, NobodyKnows)
    assert "TRADEWIND_NATS_URL" in refused.hint


async def test_a_bus_that_is_away_is_told_in_one_sentence(fleet: Fleet) -> None:
    environ = {**no_master(), "TRADEWIND_NATS_URL": f"nats://127.0.0.1:{free_port()}"}
    refused = await refusal(fleet, environ | {"TRADEWIND_NATS_CONNECT_TIMEOUT_S": "0.3"})
    assert isinstance(refused, NobodyKnows) and environ["TRADEWIND_NATS_URL"] in refused.message
