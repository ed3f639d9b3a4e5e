"""Orphans, resources that only look like orphans, and resources of others."""

import pytest

from controlplane.clouds.interface import ClusterInfo, ClusterStatus, PoolInfo, PoolStatus
from controlplane.reaper.findings import (
    DELETING,
    OWNED_AGAIN,
    UNREADABLE,
    Clusters,
    Findings,
    Found,
    has_ended,
    has_foreign_pool,
    has_pool,
    in_no_pool,
    removed_by_master,
    sort_out,
    too_young,
    two_clusters,
    unknown,
    why_not_removed,
)
from controlplane.reaper.inventory import Inventory, name_of
from controlplane.reaper.ownership_labels import YOUNG_S, asked_at, lease_of
from controlplane.reaper.state import Claim, Claims
from messages.ids import ClusterName
from tests.reaper.builders import BUS, EU, FLEET, JOB, NOW, OLD, US, a_cluster, a_pool, machines

LIVE = {JOB: Claim.LIVE}
ENDED = {JOB: Claim.ENDED}


def names(found: tuple[Found, ...]) -> list[str]:
    return [name_of(each.resource) for each in found]


def of(*clusters: ClusterInfo) -> Inventory:
    return Inventory(clusters)


def nothing(findings: Findings) -> bool:
    return findings == Findings((), ())


def test_what_a_live_job_has_is_no_finding_at_all() -> None:
    inventory = Inventory((a_cluster(a_pool()),), tuple(machines("a-pool-1")))
    assert nothing(sort_out(inventory, LIVE, FLEET, NOW))


@pytest.mark.parametrize(("claims", "why"), [(ENDED, has_ended(JOB)), ({}, unknown(JOB))], ids=["ended", "unknown"])
def test_a_pool_that_no_live_job_answers_for_is_found_with_its_machines(claims: Claims, why: str) -> None:
    inventory = Inventory((a_cluster(a_pool()),), tuple(machines("a-pool-1", "a-pool-2")))
    (found,) = sort_out(inventory, claims, FLEET, NOW).orphans
    assert (found.why, found.job, found.since, len(found.machines)) == (why, JOB, OLD, 2)


def test_a_pool_whose_job_ended_while_its_master_removes_it_is_left_to_the_master() -> None:
    findings = sort_out(of(a_cluster(a_pool())), {JOB: Claim.ENDING}, FLEET, NOW)
    assert names(findings.orphans) == []
    assert findings.left[0].why == removed_by_master(JOB)


@pytest.mark.parametrize("which", list(Clusters))
def test_what_may_be_a_job_s_whose_record_cannot_be_read_is_kept_with_its_cluster(which: Clusters) -> None:
    unread = {JOB: Claim.UNREADABLE}
    inventory = Inventory((a_cluster(a_pool(cluster=EU), name=EU),), tuple(machines("lost", zone="us-east1-b")))
    findings = sort_out(inventory, unread, FLEET, NOW, which)
    assert findings.orphans == ()
    assert {each.why for each in findings.left if each.job == JOB} == {UNREADABLE}
    going = a_cluster(a_pool(cluster=EU, status=PoolStatus.STOPPING), name=EU)
    assert sort_out(of(going), unread, FLEET, NOW, which).orphans == ()


def test_by_a_later_look_what_was_taken_up_is_kept_and_what_is_gone_or_going_is_not() -> None:
    pool = a_pool()
    (found,) = sort_out(of(a_cluster(pool)), ENDED, FLEET, NOW).orphans

    def why(claims: Claims, *pools: PoolInfo) -> str:
        inventory = of(a_cluster(*pools))
        return why_not_removed(found, inventory, sort_out(inventory, claims, FLEET, NOW))

    assert why(ENDED, pool) == ""
    assert why(LIVE, pool) == OWNED_AGAIN
    assert why({JOB: Claim.UNREADABLE}, pool) == UNREADABLE
    assert why(ENDED, a_pool(asked_at=NOW - 1)) == OWNED_AGAIN, "another of the same name"
    assert why(ENDED) == why(ENDED, a_pool(status=PoolStatus.STOPPING)) == ""


@pytest.mark.parametrize("status", [PoolStatus.PROVISIONING, PoolStatus.RUNNING, PoolStatus.ERROR])
def test_a_young_pool_of_a_job_that_is_not_known_yet_is_left_alone(status: PoolStatus) -> None:
    pool = a_pool(asked_at=NOW - 40, status=status)
    findings = sort_out(of(a_cluster(pool)), {}, FLEET, NOW)
    assert findings.orphans == ()
    assert findings.left[0].why == too_young(40.0)
    assert "40 s" in too_young(40.0)
    later = sort_out(of(a_cluster(pool)), {}, FLEET, NOW + YOUNG_S)
    assert names(later.orphans) == [name_of(pool)]


def test_a_clock_that_is_behind_makes_nothing_old() -> None:
    assert sort_out(of(a_cluster(a_pool(asked_at=NOW + 500))), {}, FLEET, NOW).orphans == ()


def test_a_pool_without_a_lease_is_as_old_as_its_oldest_machine() -> None:
    pool = a_pool(asked_at=None)
    young = Inventory((a_cluster(pool),), tuple(machines("a-pool-1", started_at=NOW - 10)))
    old = Inventory((a_cluster(pool),), (*young.machines, *machines("a-pool-2", started_at=OLD)))
    assert sort_out(young, {}, FLEET, NOW).orphans == ()
    assert sort_out(old, {}, FLEET, NOW).orphans[0].since == OLD


def test_a_half_made_pool_of_which_nobody_knows_since_when_is_left_alone_until_it_is_made() -> None:
    half = a_pool(asked_at=None, status=PoolStatus.PROVISIONING)
    whole = a_pool(asked_at=None)
    assert sort_out(of(a_cluster(half)), {}, FLEET, NOW).orphans == ()
    assert names(sort_out(of(a_cluster(whole)), {}, FLEET, NOW).orphans) == [name_of(whole)]


def test_a_pool_that_is_being_deleted_is_not_deleted_again() -> None:
    findings = sort_out(of(a_cluster(a_pool(status=PoolStatus.STOPPING))), {}, FLEET, NOW)
    assert (findings.orphans, findings.left[0].why) == ((), DELETING)


@pytest.mark.parametrize("clusters", list(Clusters))
def test_what_is_another_fleet_s_or_says_nothing_is_never_found(clusters: Clusters) -> None:
    theirs = a_cluster(a_pool(cluster=EU, fleet="theirs"), name=EU, fleet="theirs", status=ClusterStatus.ERROR)
    mixed = a_cluster(a_pool("b", fleet="theirs"), a_pool("c", fleet=None), fleet=None)
    inventory = Inventory((theirs, mixed), tuple(machines("lost", fleet="theirs", zone="us-east1-b")))
    assert nothing(sort_out(inventory, {}, FLEET, NOW, clusters))


def test_two_clusters_of_one_name_are_both_left_alone() -> None:
    here, there = a_cluster(a_pool()), a_cluster(name=US, fleet="theirs", location="us-east1-b")
    findings = sort_out(of(here, there), {}, FLEET, NOW)
    assert findings.orphans == ()
    assert findings.left[0].why == two_clusters(US)


def test_a_machine_without_a_pool_is_found_unless_its_job_lives_or_it_is_young() -> None:
    stray, young = machines("lost"), machines("new", started_at=NOW - 5)
    inventory = Inventory((a_cluster(),), (*stray, *young))
    findings = sort_out(inventory, {}, FLEET, NOW)
    assert (names(findings.orphans), names(findings.left)) == (["machine lost"], ["machine new"])
    assert findings.orphans[0].why == in_no_pool(unknown(JOB))
    assert nothing(sort_out(inventory, LIVE, FLEET, NOW))


def test_machines_of_two_like_pools_go_with_the_one_that_they_are_named_after() -> None:
    clusters = (a_cluster(a_pool("first")), a_cluster(a_pool("second", cluster=EU), name=EU))
    inventory = Inventory(clusters, tuple(machines("gke-eu-second-1")))
    found = {name_of(each.resource): len(each.machines) for each in sort_out(inventory, ENDED, FLEET, NOW).orphans}
    assert found == {name_of(a_pool("first")): 0, "cluster eu": 1}


# Clusters


def goes(cluster: ClusterInfo, clusters: Clusters) -> bool:
    return any(
        isinstance(each.resource, ClusterInfo) for each in sort_out(of(cluster), {}, FLEET, NOW, clusters).orphans
    )


@pytest.mark.parametrize(
    ("name", "status", "may_go"),
    [
        (US, ClusterStatus.RUNNING, {Clusters.ALL}),
        (US, ClusterStatus.ERROR, {Clusters.ALL}),
        (EU, ClusterStatus.RUNNING, {Clusters.ALL, Clusters.UNNAMED}),
        (EU, ClusterStatus.ERROR, {Clusters.ALL, Clusters.UNNAMED, Clusters.FAILED}),
        (EU, ClusterStatus.PROVISIONING, set()),
        (EU, ClusterStatus.STOPPING, set()),
    ],
)
def test_which_clusters_go(name: ClusterName, status: ClusterStatus, may_go: set[Clusters]) -> None:
    cluster = a_cluster(name=name, status=status)
    assert {which for which in Clusters if goes(cluster, which)} == may_go


def test_a_cluster_in_which_a_live_job_has_a_pool_stays() -> None:
    cluster = a_cluster(a_pool(cluster=EU), name=EU)
    findings = sort_out(of(cluster), LIVE, FLEET, NOW, Clusters.ALL)
    assert (findings.orphans, findings.left[0].why) == ((), has_pool(JOB))


def test_a_cluster_with_somebody_else_s_pool_stays_and_ours_in_it_goes_alone() -> None:
    cluster = a_cluster(a_pool(cluster=EU), a_pool("by-hand", cluster=EU, job=None, fleet=None), name=EU)
    findings = sort_out(of(cluster), ENDED, FLEET, NOW, Clusters.ALL)
    assert names(findings.orphans) == [name_of(a_pool(cluster=EU))]
    assert findings.left[0].why == has_foreign_pool("by-hand")


def test_what_goes_with_its_cluster_is_not_named_twice() -> None:
    cluster = a_cluster(a_pool(cluster=EU), a_pool("going", cluster=EU, status=PoolStatus.STOPPING), name=EU)
    assert names(sort_out(of(cluster), ENDED, FLEET, NOW).orphans) == ["cluster eu"]


# Leases


def test_a_lease_is_read_as_it_was_written_and_nothing_else_is_one() -> None:
    assert asked_at(a_pool(asked_at=NOW).labels) == NOW
    assert lease_of(NOW + 0.9, BUS) == lease_of(NOW, BUS)
    assert [asked_at({"tradewind-lease": text}) for text in ("", "soon", "-1", "1" * 12, "7\n")] == [None] * 5
