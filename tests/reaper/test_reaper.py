"""The reaper of a master that leads, against the simulator: what it removes, what it leaves, and when it stops."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.capacity.leaders_cloud import LeadersCloud
from controlplane.capacity.observer import Observer
from controlplane.clouds.interface import Cloud, ClusterStatus, PoolRef
from controlplane.clouds.outcomes import Outcome, Unfinished
from controlplane.job.state import new_job
from controlplane.reaper import findings, reaper
from controlplane.reaper.claims import read_claims, read_records
from controlplane.reaper.decide import MACHINE_HINT
from controlplane.reaper.reaper import Reaper
from controlplane.reaper.state import Claim, Records
from messages import subjects
from messages.events import Event
from messages.ids import ClusterName, Epoch, JobName
from messages.labels import BUS_LABEL
from messages.records import Record, encode_record
from runtime.bus import Bus
from runtime.clock import SystemClock
from runtime.errors import BusUnavailable
from runtime.nats_server import NatsServer
from tests.capacity.fake_cloud import FakeCloud
from tests.clouds.contract import is_reached, until
from tests.reaper.builders import BUS, OLD, a_cluster, a_pool, machines
from tests.reaper.ground import CLUSTER, FLEET, Ground, a_ground
from tests.specs import a_spec

MINE = findings.FleetScope(FLEET, [CLUSTER])


class Watched:
    """A reaper with its inputs and its announcements."""

    def __init__(
        self, cloud: Cloud, claims: Mapping[str, Claim] | None = None, held: Callable[[], set[str]] = set
    ) -> None:
        self.leads = True
        self.bus = BUS
        self.bus_is_away = False
        self.reported: list[Event] = []
        self.claims = {JobName(job): claim for job, claim in (claims or {}).items()}
        self.reaper = Reaper(
            LeadersCloud(cloud, lambda: self.leads, Observer(cloud, SystemClock(), every_s=0.0)),
            MINE,
            self._read,
            lambda job: job not in held(),
            self.reported.append,
            lambda: self.leads,
            SystemClock(),
        )

    async def _read(self) -> Records:
        if self.bus_is_away:
            raise BusUnavailable("no answer")
        return Records(self.claims, self.bus)

    async def look(self, times: int = 2) -> None:
        for _ in range(times):
            await self.reaper.look()

    def kinds(self) -> list[str]:
        return [event.kind for event in self.reported]


async def _planted(ground: Ground) -> None:
    """Pools of a live job, an ended one, an unrecorded one, a new one, and another fleet."""
    await ground.plant("live", "lives")
    await ground.plant("over", "ended")
    await ground.plant("unrecorded", "crashed")
    await ground.plant("new", "just-asked", age_s=5)
    await ground.plant("theirs", "crashed", fleet="another")


async def test_pools_that_no_live_job_owns_are_removed_and_all_others_stay(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        await _planted(ground)
        watched = Watched(ground.cloud, {"lives": Claim.LIVE, "ended": Claim.ENDED})
        await watched.look(1)
        assert len(await ground.pools()) == 5, "one look is not enough"
        await watched.look(1)
        assert await ground.pools() == {"live", "new", "theirs"}
        assert {(event.kind, event.fields["job"], event.why) for event in watched.reported} == {
            ("reaped", "ended", findings.has_ended(JobName("ended"))),
            ("reaped", "crashed", findings.unknown(JobName("crashed"))),
        }


async def test_while_an_allocator_is_at_work_its_job_s_pools_are_left_to_it(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        await ground.plant("over", "ended")
        held = {"ended"}
        watched = Watched(ground.cloud, {"ended": Claim.ENDED}, lambda: held)
        await watched.look()
        assert await ground.pools() == {"over"}
        held.clear()
        await watched.look()
        assert await ground.pools() == set()


async def test_the_one_that_does_not_lead_removes_nothing(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        await ground.plant("over", "crashed")
        watched = Watched(ground.cloud)
        await watched.look(1)
        watched.leads = False
        await watched.look()
        assert await ground.pools() == {"over"}
        watched.leads = True
        await watched.look(1)
        assert await ground.pools() == {"over"}, "what was seen in an earlier lead does not count"


async def test_without_the_records_or_the_list_nothing_is_removed(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        await ground.plant("over", "crashed")
        watched = Watched(ground.cloud)
        await watched.look(1)
        watched.bus_is_away = True
        await watched.look()
        watched.bus_is_away = False
        async with ground.stage.away():
            await watched.look()
        await until(lambda: is_reached(ground.cloud), True)
        assert await ground.pools() == {"over"}
        assert watched.reported == []


async def test_a_half_made_pool_goes_when_its_making_has_ended(tmp_path: Path) -> None:
    async with a_ground(tmp_path, stockout_s=1.5) as ground:
        await ground.stage.stock_out()
        made = await ground.cloud.create_pool(CLUSTER, ground.a_plan("half", "crashed"))
        assert isinstance(made, Unfinished)
        watched = Watched(ground.cloud)

        async def is_gone() -> bool:
            await watched.look(1)
            return not await ground.pools()

        await until(is_gone, True)
        assert watched.kinds()[-1] == "reaped"
        assert watched.kinds().count("reap_failed") <= 1, "the same trouble is told once"


async def test_of_clusters_only_those_go_whose_creation_failed_and_that_the_file_does_not_name() -> None:
    cloud = FakeCloud()
    for name, status in (
        (CLUSTER, ClusterStatus.ERROR),
        (ClusterName("failed"), ClusterStatus.ERROR),
        (ClusterName("runs"), ClusterStatus.RUNNING),
    ):
        cloud.infos[name] = a_cluster(name=name, fleet=FLEET, status=status)
    watched = Watched(cloud)
    await watched.look()
    assert set(cloud.infos) == {CLUSTER, "runs"}
    assert watched.kinds() == ["reaped"]


async def test_a_machine_in_no_pool_is_told_of_once_and_not_touched() -> None:
    cloud = FakeCloud()
    cloud.running += machines("lost", fleet=FLEET, started_at=OLD)
    watched = Watched(cloud)
    await watched.look(5)
    assert watched.kinds() == ["reap_failed"]
    assert watched.reported[0].why == MACHINE_HINT
    assert cloud.removed == []


async def test_a_look_that_fails_does_not_make_the_reaper_say_everything_again() -> None:
    cloud = FakeCloud()
    cloud.running += machines("lost", fleet=FLEET, started_at=OLD)
    watched = Watched(cloud)
    await watched.look()
    watched.bus_is_away = True
    await watched.look(1)
    watched.bus_is_away = False
    await watched.look(3)
    assert watched.kinds() == ["reap_failed"]


@pytest.mark.parametrize("claims", [{}, {"mnist": Claim.ENDED}], ids=["unknown", "another of its name has ended"])
async def test_a_pool_of_a_job_of_another_bus_stays_and_is_told_of_once(claims: Mapping[str, Claim]) -> None:
    """A master with the same fleet file and its own bus sees this, or one whose bus lost its records."""
    cloud = FakeCloud("a-cluster")
    theirs, unsaid = a_pool("theirs", cluster=CLUSTER, fleet=FLEET), a_pool("unsaid", cluster=CLUSTER, fleet=FLEET)
    unsaid = replace(unsaid, labels={key: text for key, text in unsaid.labels.items() if key != BUS_LABEL})
    cloud.infos[CLUSTER] = replace(cloud.infos[CLUSTER], pools=(theirs, unsaid))
    watched = Watched(cloud, claims)
    watched.bus = "1700000000000"
    await watched.look(5)
    assert [pool.ref.pool for pool in cloud.pools()] == ["theirs", "unsaid"]
    assert watched.kinds() == ["not_reaped"] * 2
    assert findings.ELSEWHERE in watched.reported[0].why


async def test_a_failed_cluster_stays_with_a_pool_of_another_bus() -> None:
    cloud, failed = FakeCloud(), ClusterName("failed")
    pool = a_pool(cluster=failed, fleet=FLEET, bus="another")
    cloud.infos[failed] = a_cluster(pool, name=failed, fleet=FLEET, status=ClusterStatus.ERROR)
    await Watched(cloud).look()
    assert set(cloud.infos) == {failed}


async def test_another_pool_under_the_same_name_needs_two_looks_of_its_own() -> None:
    cloud = FakeCloud("a-cluster")
    watched = Watched(cloud)
    for asked_at in (OLD, OLD + 1):
        pool = a_pool(cluster=CLUSTER, fleet=FLEET, asked_at=asked_at)
        cloud.infos[CLUSTER] = replace(cloud.infos[CLUSTER], pools=(pool,))
        await watched.look(1)
    assert len(cloud.pools()) == 1
    await watched.look(1)
    assert cloud.pools() == []


async def test_what_a_new_job_takes_up_while_others_are_removed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "AT_ONCE", 1)
    held: set[str] = set()

    class Cloud(FakeCloud):
        async def delete_pool(self, pool: PoolRef) -> Outcome:
            held.add("again")
            return await super().delete_pool(pool)

    cloud = Cloud("a-cluster")
    pools = tuple(
        a_pool(name, job=job, cluster=CLUSTER, fleet=FLEET) for name, job in (("p1", "gone"), ("p2", "again"))
    )
    cloud.infos[CLUSTER] = replace(cloud.infos[CLUSTER], pools=pools)
    watched = Watched(cloud, {"gone": Claim.ENDED, "again": Claim.ENDED}, lambda: held)
    await watched.look()
    assert [pool.ref.pool for pool in cloud.pools()] == ["p2"]
    assert [event.fields["job"] for event in watched.reported] == ["gone"]


# Claims in the records


def a_record(phase: str) -> bytes:
    spec = a_spec("any")
    record: Record = new_job(spec, epoch=Epoch(1), at_s=0.0, submitted_at=1.0).record
    return encode_record(record).replace(b'"phase":"waiting"', f'"phase":"{phase}"'.encode())


async def test_a_job_lives_unless_its_record_says_that_it_has_ended(bus: Bus) -> None:
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    worlds = {
        "waits": a_record("waiting"),
        "runs": a_record("running"),
        "done": a_record("succeeded"),
        "stopped": a_record("stopped"),
        "of-a-newer-master": b'{"phase": "dreaming"}',
        "broken": b"\xff",
        "just-submitted": None,
    }
    for job, world in worlds.items():
        await bucket.put(subjects.spec_key(JobName(job)), b"a spec that cannot be read is a spec")
        if world is not None:
            await bucket.put(subjects.record_key(JobName(job)), world)
    claims = await read_claims(bucket)
    assert set(claims) == set(worlds)
    assert {job for job, claim in claims.items() if claim is Claim.ENDED} == {"done", "stopped"}
    assert {job for job, claim in claims.items() if claim is Claim.UNREADABLE} == {"of-a-newer-master", "broken"}


async def test_a_bus_that_lost_its_records_is_another_bus(bus: Bus, nats_server: NatsServer) -> None:
    before = await read_records(await bus.bucket(subjects.STATE_BUCKET))
    assert await read_records(await bus.bucket(subjects.STATE_BUCKET)) == before
    await nats_server.stop()
    shutil.rmtree(nats_server.folder)
    await nats_server.start()
    after = await read_records(await bus.bucket(subjects.STATE_BUCKET, timeout_s=20.0))
    assert after.bus != before.bus
