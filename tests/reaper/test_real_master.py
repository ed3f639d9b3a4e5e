"""With a real master: its decisions outlive it, and when it is dead its records show which jobs live."""

import json
import signal
from pathlib import Path

from controlplane.fleet.files import read_fleet
from controlplane.reaper.claims import read_records
from controlplane.reaper.state import Claim
from messages import subjects
from messages.events import EventKind
from messages.labels import BUS_LABEL, JOB_LABEL
from runtime.bus import Bus
from runtime.nats_server import NatsServer
from tests.capacity.test_crash import a_master
from tests.cli.builders import no_master
from tests.cli.command import tradewind
from tests.cli.test_live_jobs import CLUSTER, EXAMPLE
from tests.clouds.contract import found, until
from tests.clouds.simulated import SimulatedStage
from tests.master.process import a_spec, running_master
from tradewind.cli.live_jobs import known_jobs


async def test_decisions_are_explained_by_the_next_master_too(nats_server: NatsServer, tmp_path: Path) -> None:
    async with running_master(nats_server.url, tmp_path) as (first, api):
        await api.submit(a_spec("mnist", 4))
        await api.ask("POST", "/v1/jobs/mnist/scale", {"workers": 3})
        first.signal(signal.SIGTERM)
        assert await first.wait() == 0
    async with running_master(nats_server.url, tmp_path) as (second, _):
        done = await tradewind("explain", "mnist", "--json", environ={"TRADEWIND_API_URL": second.url})
    assert done.code == 0, done.err
    made = {each["kind"]: each for each in map(json.loads, done.out.splitlines())}
    assert "1 to 4 workers" in made[EventKind.JOB_SUBMITTED]["text"]
    assert made[EventKind.JOB_SCALED]["text"].startswith("3 ")
    assert made[EventKind.JOB_SCALED]["why"]


async def test_a_dead_master_s_records_say_which_jobs_live(bus: Bus, nats_server: NatsServer, tmp_path: Path) -> None:
    async with running_master(nats_server.url, tmp_path) as (master, api):
        for job in ("lives", "over"):
            await api.submit(a_spec(job))
        await api.ask("POST", "/v1/jobs/over/stop")
        await api.until_phase("over", "stopped")
        master.signal(signal.SIGTERM)
        assert await master.wait() == 0
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    await bucket.put(subjects.known_key(CLUSTER), b"{}")
    known = await known_jobs(read_fleet(EXAMPLE), {**no_master(), "TRADEWIND_NATS_URL": nats_server.url})
    assert known.claims == {"lives": Claim.LIVE, "over": Claim.ENDED}


async def test_a_pool_says_over_which_bus_it_was_asked_for(bus: Bus, nats_server: NatsServer, tmp_path: Path) -> None:
    async with SimulatedStage.open(tmp_path) as stage, a_master(stage, nats_server, tmp_path) as (_, api):
        await api.submit(a_spec("mnist", 2))
        records = await read_records(await bus.bucket(subjects.STATE_BUCKET))

        async def buses() -> list[str]:
            pools = [pool for cluster in found(await stage.cloud.clusters()) for pool in cluster.pools]
            return [pool.labels[BUS_LABEL] for pool in pools if JOB_LABEL in pool.labels]

        await until(buses, [records.bus])
