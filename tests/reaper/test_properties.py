"""Properties for any inventory and claims: owned resources stay, orphans are removed, and then nothing is found."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.clouds.interface import ClusterInfo, ClusterStatus, MachineInfo, PoolInfo, PoolStatus
from controlplane.reaper.findings import Clusters, Findings, Found, sort_out
from controlplane.reaper.inventory import Inventory, is_of, job_of, name_of
from controlplane.reaper.ownership_labels import YOUNG_S, asked_at, is_of_bus
from controlplane.reaper.state import Claim, Claims
from messages.ids import ClusterName, JobName
from tests.reaper.builders import BUS, FLEET, NOW, ZONE, a_cluster, a_pool, machines

FAST = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
JOBS = ("a", "b", "c")
FLEETS = st.sampled_from(["ours"] * 6 + ["theirs", None])
"""Mostly our labels: otherwise hardly a whole cluster would be ours."""
ASKED = st.sampled_from([None, NOW - YOUNG_S - 1, NOW - YOUNG_S + 1, NOW - 1, NOW + 60])


@st.composite
def clusters(draw: st.DrawFn) -> ClusterInfo:
    name = ClusterName(draw(st.sampled_from(["us", "eu", "asia", "africa", "oceania", "arctic"])))
    pools = [
        a_pool(
            f"pool-{number}",
            cluster=name,
            job=draw(st.sampled_from([*JOBS, None])),
            fleet=draw(FLEETS),
            asked_at=draw(ASKED),
            bus=draw(st.sampled_from([BUS, "another"])),
            status=draw(st.sampled_from([PoolStatus.RUNNING, *PoolStatus])),
        )
        for number in range(draw(st.integers(0, 3)))
    ]
    status = draw(st.sampled_from([ClusterStatus.RUNNING, *ClusterStatus]))
    return a_cluster(*pools, name=name, fleet=draw(FLEETS), status=status, location=draw(st.sampled_from([ZONE, "x"])))


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    found = draw(st.lists(clusters(), max_size=4))
    running: list[MachineInfo] = []
    for number in range(draw(st.integers(0, 4))):
        job, fleet = draw(st.sampled_from(JOBS)), draw(st.sampled_from(["ours", "theirs"]))
        zone = draw(st.sampled_from([ZONE, "us-east1-b"]))
        started_at = draw(ASKED.filter(lambda at: at is not None))
        running += machines(f"m-{number}", job=job, fleet=fleet, zone=zone, started_at=started_at or 0.0)
    return Inventory(tuple(found), tuple(running))


CLAIMS = st.fixed_dictionaries({}, optional={JobName(job): st.sampled_from(Claim) for job in JOBS})


def contents(found: Found) -> list[PoolInfo]:
    match found.resource:
        case ClusterInfo():
            return list(found.resource.pools)
        case PoolInfo():
            return [found.resource]
        case MachineInfo():
            return []


def without(inventory: Inventory, findings: Findings) -> Inventory:
    """The cloud after all orphans were removed."""
    gone = [each.resource for each in findings.orphans]
    taken = [machine for each in findings.orphans for machine in each.machines]
    kept = [
        ClusterInfo(
            cluster.name,
            cluster.location,
            cluster.ready,
            cluster.labels,
            tuple(pool for pool in cluster.pools if pool not in gone),
            status=cluster.status,
        )
        for cluster in inventory.clusters
        if cluster not in gone
    ]
    return Inventory(tuple(kept), tuple(machine for machine in inventory.machines if machine not in taken))


def is_answered_for(labels: dict[str, str], claims: Claims) -> bool:
    job = job_of(labels)
    return job is not None and claims.get(job) in (Claim.LIVE, Claim.UNREADABLE, Claim.ENDING)


@FAST
@given(inventories(), CLAIMS, st.sampled_from(Clusters), st.sampled_from([None, BUS]))
def test_nothing_goes_that_is_somebody_s_or_may_be(
    inventory: Inventory, claims: Claims, which: Clusters, bus: str | None
) -> None:
    for found in sort_out(inventory, claims, FLEET, NOW, which, bus).orphans:
        assert is_of(found.resource.labels, FLEET.name)
        assert not is_answered_for(dict(found.resource.labels), claims)
        for pool in contents(found):
            job, asked = job_of(pool.labels), asked_at(pool.labels)
            assert is_of(pool.labels, FLEET.name)
            if pool.status is not PoolStatus.STOPPING:
                assert not is_answered_for(dict(pool.labels), claims)
                assert job is None or bus is None or is_of_bus(pool.labels, bus)
                is_young = asked is not None and NOW - asked < YOUNG_S
                assert job is None or job in claims or not is_young
            elif job is not None:
                assert claims.get(job) not in (Claim.LIVE, Claim.UNREADABLE)
        if isinstance(found.resource, ClusterInfo):
            assert which is Clusters.ALL or found.resource.name not in FLEET.clusters
            assert which is not Clusters.FAILED or found.resource.status is ClusterStatus.ERROR


@FAST
@given(inventories(), CLAIMS, st.sampled_from(Clusters))
def test_what_is_surely_nobody_s_goes(inventory: Inventory, claims: Claims, which: Clusters) -> None:
    covered = [pool for found in sort_out(inventory, claims, FLEET, NOW, which).orphans for pool in contents(found)]
    names = [cluster.name for cluster in inventory.clusters]
    for pool in inventory.pools:
        job, asked = job_of(pool.labels), asked_at(pool.labels)
        if not is_of(pool.labels, FLEET.name) or job is None or names.count(pool.ref.cluster) > 1:
            continue
        is_old = asked is not None and NOW - asked >= YOUNG_S
        is_over = claims.get(job) is Claim.ENDED or (job not in claims and is_old)
        if is_over and pool.status is not PoolStatus.STOPPING:
            assert pool in covered


@FAST
@given(inventories(), CLAIMS, st.sampled_from(Clusters))
def test_when_it_is_gone_nothing_more_is_found(inventory: Inventory, claims: Claims, which: Clusters) -> None:
    findings = sort_out(inventory, claims, FLEET, NOW, which)
    assert sort_out(without(inventory, findings), claims, FLEET, NOW, which).orphans == ()


@FAST
@given(inventories(), CLAIMS, st.sampled_from(Clusters))
def test_of_each_thing_there_is_one_finding_at_most(inventory: Inventory, claims: Claims, which: Clusters) -> None:
    findings = sort_out(inventory, claims, FLEET, NOW, which)
    unique = len({cluster.name for cluster in inventory.clusters}) == len(inventory.clusters)
    named = [name_of(each.resource) for each in (*findings.orphans, *findings.left)]
    assert not unique or len(named) == len(set(named))
