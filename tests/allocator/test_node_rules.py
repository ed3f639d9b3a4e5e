"""What is learned from nodes and from time, just before and at each limit."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.allocator import events
from controlplane.allocator.availability import (
    availability_of,
    close,
    is_closed,
    is_in_cooldown,
    reopen_after,
    start_cooldown,
    was_refused_recently,
)
from controlplane.allocator.counting import (
    lost,
)
from controlplane.allocator.learn import learn
from controlplane.allocator.learn_nodes import lose, lose_left, lose_overdue, revive, sideline
from controlplane.allocator.state import (
    Allocator,
    Closure,
    Kind,
    Node,
    Plans,
    Pool,
    Shortage,
)
from messages.clusters import NodeObservation
from tests.allocator.built import LOST, NOTICED, NOW_S, REF, SETTINGS, SOUND, a_pool, an_allocator, operation, planned
from tests.allocator.stage import EU, JOB, US, A, B, C
from tests.planning.builders import (
    a_small_profile,
    some_criteria,
)


@pytest.mark.parametrize(
    ("node", "is_aside", "is_lost"),
    [
        (SOUND, False, False),
        ({"unready_s": NOW_S - 9.9}, False, False),
        ({"unready_s": NOW_S - 10.0}, True, False),
        ({"cordoned": True}, True, False),
        ({"cordoned": True, **NOTICED}, False, True),
        ({"cordoned": True, **LOST}, False, False),
        ({"notice_until_s": NOW_S + 0.1}, False, False),
        ({"notice_until_s": NOW_S}, False, True),
        ({"sidelined_s": NOW_S - 899.9}, False, False),
        ({"sidelined_s": NOW_S - 900.0}, False, True),
        ({"was_ready": False}, False, True),
        ({"was_ready": False, "first_seen_s": NOW_S - 599.9}, False, False),
        ({"was_ready": False, "first_seen_s": NOW_S - 600.0}, False, True),
        ({**LOST, "was_ready": False}, False, False),
    ],
)
def test_a_node_stands_aside_or_is_lost_when_its_time_is_over(
    node: dict[str, Any], is_aside: bool, is_lost: bool
) -> None:
    given = {"first_seen_s": 0.0, "ready": True, "was_ready": True, "dismissed": "idle", **node}
    pool = replace(a_pool(SOUND), nodes={"n1": Node("n1", "u1", **given)})
    aside, count = sideline(pool, SETTINGS, NOW_S)
    assert (count, aside.nodes["n1"].sidelined_s == NOW_S) == (is_aside, is_aside)
    assert aside.nodes["n1"].dismissed == ("" if is_aside else "idle")
    after, count = lose_overdue(pool, SETTINGS, NOW_S)
    assert (count, after.nodes["n1"].lost_s == NOW_S) == (is_lost, is_lost)


@pytest.mark.parametrize(("notice_s", "is_lost"), [(120.0, False), (120.1, True)])
def test_a_node_with_a_long_notice_is_given_back_when_the_job_has_left_it(notice_s: float, is_lost: bool) -> None:
    pool = a_pool({"notice_until_s": NOW_S + notice_s}, {"notice_until_s": NOW_S + notice_s}, SOUND)
    after = lose_left(pool, frozenset({"n1", "n3"}), SETTINGS, NOW_S)
    assert [node.name for node in lost(after)] == (["n1"] if is_lost else [])


def test_a_lost_node_is_remembered_by_its_uid_and_the_newest_two_hundred_are() -> None:
    pool = a_pool(SOUND, {"abandoned": True}, dead=tuple(f"d{number}" for number in range(200)), vacant={"n1": 5.0})
    after = lose(pool, pool.nodes["n1"], NOW_S)
    assert (len(after.dead), after.dead[0], after.dead[-1]) == (200, "d1", "u1")
    assert after.nodes["n1"].lost_s == NOW_S and after.vacant == {}
    assert lose(pool, replace(pool.nodes["n1"], uid=""), NOW_S).dead == pool.dead
    assert not lose(pool, pool.nodes["n2"], NOW_S).nodes["n2"].abandoned


@pytest.mark.parametrize(("target", "back"), [(1, 0), (2, 1), (3, 2), (4, 2)])
def test_abandoned_nodes_count_again_if_their_slots_were_not_removed(target: int, back: int) -> None:
    gone = {"lost_s": 1.0, "abandoned": True}
    pool = a_pool(SOUND, gone, gone, target=target)
    after = revive(pool)
    assert sum(node.counts for node in after.nodes.values()) == 1 + back
    assert sum(node.abandoned for node in after.nodes.values()) == 2 - back
    assert revive(replace(pool, updating=True)) == replace(pool, updating=True)


def observe(allocator: Allocator, *observations: NodeObservation, at_s: float = NOW_S) -> Allocator:
    return learn(allocator, events.NodesSeen(at_s, US, observations))


def seen(name: str, uid: str = "", **changes: Any) -> NodeObservation:
    return NodeObservation(**{"node": name, "uid": uid, "pool": REF.pool, "job": JOB, "ready": True, **changes})


def test_an_observed_node_is_what_its_cluster_says() -> None:
    allocator = an_allocator(a_pool(SOUND, target=2))
    both = observe(allocator, seen("n1", "u1"), seen("n2", "u2", ready=False, was_ready=True))
    first, second = both.pools[REF].nodes.values()
    assert (first.ready, first.was_ready, first.unready_s, first.first_seen_s) == (True, True, None, 0.0)
    assert (second.ready, second.was_ready, second.unready_s) == (False, True, NOW_S)
    assert (second.first_seen_s, second.lost_s, second.abandoned) == (NOW_S, None, False)
    later = observe(both, seen("n1", "u1"), seen("n2", "u2", ready=False), at_s=NOW_S + 5)
    assert later.pools[REF].nodes["n2"].unready_s == NOW_S
    assert (later.pools[REF].sighted_s, later.pools[REF].vacant) == (NOW_S + 5, {})
    never = observe(allocator, seen("n1", "u1"), seen("n2", "u2", ready=False))
    assert never.pools[REF].nodes["n2"].unready_s is None and not never.pools[REF].nodes["n2"].was_ready
    unnamed = observe(both, seen("n1", ""), seen("n2", "u2"))
    assert unnamed.pools[REF].nodes["n1"].uid == "u1"


def test_a_notice_counts_from_when_it_is_seen_and_is_not_extended() -> None:
    allocator = an_allocator(a_pool(SOUND))
    noticed_s = observe(allocator, seen("n1", "u1", notice_s=15.0))
    assert noticed_s.pools[REF].nodes["n1"].notice_until_s == NOW_S + 15.0
    again = observe(noticed_s, seen("n1", "u1", notice_s=15.0), at_s=NOW_S + 5)
    assert again.pools[REF].nodes["n1"].notice_until_s == NOW_S + 15.0
    drained = observe(allocator, seen("n1", "u1", notice_s=15.0, cordoned=True))
    node = drained.pools[REF].nodes["n1"]
    assert (node.notice_until_s, node.cordoned, node.sidelined_s) == (None, True, NOW_S)
    assert drained.listing.unlisted_s == NOW_S
    assert observe(drained, seen("n1", "u1", cordoned=True), at_s=NOW_S + 5).listing.unlisted_s == NOW_S
    back = observe(drained, seen("n1", "u1"), at_s=NOW_S + 5).pools[REF].nodes["n1"]
    assert (back.sidelined_s, back.counts) == (None, True)
    over = observe(allocator, seen("n1", "u1", notice_s=-3.0)).pools[REF].nodes["n1"]
    assert (over.notice_until_s, over.lost_s) == (NOW_S, NOW_S)


def test_a_dead_machine_is_not_revived_and_its_name_may_be_used_again() -> None:
    allocator = an_allocator(a_pool(SOUND, dead=("u9",)))
    dead = observe(allocator, seen("n1", "u9")).pools[REF].nodes["n1"]
    assert (dead.uid, dead.lost_s, dead.abandoned) == ("u9", NOW_S, False)
    other = observe(allocator, seen("n1", "u2")).pools[REF].nodes["n1"]
    assert (other.uid, other.lost_s, other.first_seen_s) == ("u2", None, NOW_S)


def test_removed_nodes_that_are_still_reported_do_not_count() -> None:
    removed = frozenset({("n1", "u1"), ("n2", ""), ("n3", "u3"), ("n4", "u4")})
    allocator = an_allocator(a_pool(target=3, removed=removed))
    after = observe(allocator, seen("n1", "u1"), seen("n2", "u7"), seen("n3", "other")).pools[REF]
    assert [*after.nodes] == ["n3"]
    assert after.removed == {("n1", "u1"), ("n2", "")}


def test_slots_of_nodes_that_disappear_are_vacant_unless_they_are_removed() -> None:
    allocator = an_allocator(a_pool(SOUND, SOUND, SOUND))
    after = observe(allocator, seen("n1", "u1"))
    assert after.pools[REF].vacant == {"n2": NOW_S, "n3": NOW_S}
    assert observe(after, seen("n1", "u1"), at_s=NOW_S + 1).pools[REF].vacant == {"n2": NOW_S, "n3": NOW_S}
    assert observe(after, seen("n1", "u1"), seen("n2", "u8")).pools[REF].vacant == {"n3": NOW_S}
    lower = an_allocator(a_pool(SOUND, SOUND, SOUND, target=2))
    assert observe(lower, seen("n1", "u1")).pools[REF].vacant == {"n2": NOW_S}
    removing = operation(Kind.REMOVE, 3, 2, nodes=frozenset({"n2"}))
    pool = a_pool(SOUND, SOUND, SOUND, operation=removing)
    assert observe(an_allocator(pool), seen("n1", "u1")).pools[REF].vacant == {"n3": NOW_S}
    deleting = replace(pool, operation=operation(Kind.DELETE, 3, 0))
    assert observe(an_allocator(deleting), seen("n1", "u1")).pools[REF].vacant == {}
    raised = a_pool(SOUND, target=1, operation=operation(Kind.RESIZE, 1, 2), vacant={"x": 1.0})
    assert observe(an_allocator(raised), seen("n1", "u1")).pools[REF].vacant == {"x": 1.0}


@pytest.mark.parametrize(
    ("pool", "observations", "cools"),
    [
        (a_pool(SOUND), (), True),
        (a_pool(SOUND), (seen("n1", "u1"),), False),
        (a_pool(SOUND), (seen("n1", "other"),), True),
        (a_pool(SOUND), (seen("n1", "u1", notice_s=9.0),), True),
        (a_pool(SOUND, updating=True), (), False),
        (a_pool({"cordoned": True}), (), False),
        (a_pool(NOTICED), (), False),
        (a_pool(LOST), (), False),
        (a_pool(SOUND, operation=operation(Kind.REMOVE, 1, 0, nodes=frozenset({"n1"}))), (), False),
        (a_pool(SOUND, operation=operation(Kind.DELETE, 1, 0)), (), False),
        (a_pool(SOUND, operation=operation(Kind.RESIZE, 1, 0)), (), True),
    ],
)
def test_a_zone_cools_down_after_a_loss_that_nobody_asked_for(
    pool: Pool, observations: tuple[NodeObservation, ...], cools: bool
) -> None:
    after = observe(an_allocator(pool), *observations)
    assert is_in_cooldown(after, A.kind, NOW_S) is cools
    assert not is_in_cooldown(after, B.kind, NOW_S)


def test_a_lost_cluster_loses_its_nodes_and_is_asked_for_none() -> None:
    allocator = planned(an_allocator(a_pool(SOUND, LOST, target=3)))
    want = events.NodesWanted(NOW_S, allocator.want + 1, 3, lost=frozenset({US}))
    after = learn(allocator, want)
    assert after.clusters[US] is False and after.clusters.get(EU, True)
    pool = after.pools[REF]
    assert ([node.name for node in lost(pool)], pool.nodes["n2"].lost_s, pool.hanging_s) == (["n1", "n2"], 1.0, NOW_S)
    assert [is_in_cooldown(after, offer.kind, NOW_S) for offer in (A, B, C)] == [True, True, False]
    full = learn(an_allocator(a_pool(LOST)), want)
    assert full.pools[REF].hanging_s is None and not is_in_cooldown(full, A.kind, NOW_S)
    assert [is_in_cooldown(learn(an_allocator(a_pool(SOUND)), want), o.kind, NOW_S) for o in (A, B)] == [True, False]


def aged(pool: Pool, at_s: float = NOW_S, **changes: Any) -> Allocator:
    return learn(an_allocator(pool, **changes), events.Ticked(at_s))


@pytest.mark.parametrize(("after_s", "is_over"), [(4.9, False), (5.0, True)])
def test_a_lost_slot_is_written_off_after_its_time_unless_it_is_asked_for_again(after_s: float, is_over: bool) -> None:
    pool = a_pool(SOUND, {"lost_s": NOW_S}, target=3, vacant={"x": NOW_S})
    names = {"n2", "x"}
    assert aged(pool, NOW_S + after_s).pools[REF].written_off == (names if is_over else set())
    again = replace(pool, operation=operation(Kind.RESIZE, 3, 4, vacant=frozenset({"x"})))
    assert aged(again, NOW_S + after_s).pools[REF].written_off == ({"n2"} if is_over else set())
    lower = replace(pool, operation=operation(Kind.REMOVE, 3, 2, vacant=frozenset({"x"})))
    assert aged(lower, NOW_S + after_s).pools[REF].written_off == (names if is_over else set())


@pytest.mark.parametrize(("after_s", "is_over"), [(119.9, False), (120.0, True)])
def test_a_pool_that_hangs_is_abandoned_after_its_time_and_not_when_it_is_full(after_s: float, is_over: bool) -> None:
    pool = a_pool(SOUND, target=2, hanging_s=NOW_S)
    after = aged(pool, NOW_S + after_s).pools[REF]
    assert (after.abandoned, after.hanging_s) == (is_over, NOW_S)
    full = aged(replace(pool, target=1, abandoned=True), NOW_S + after_s).pools[REF]
    assert (full.abandoned, full.hanging_s) == (False, None)


def test_an_empty_slot_closes_its_zone_after_ten_minutes_again_and_again() -> None:
    empty = aged(a_pool(SOUND, target=2, granted=True))
    assert empty.pools[REF].empty_since_s == NOW_S
    still = learn(empty, events.Ticked(NOW_S + 599.9))
    assert still.pools[REF].granted and not is_closed(still, A.kind, NOW_S + 599.9)
    over = learn(empty, events.Ticked(NOW_S + 600.0))
    assert is_closed(over, A.kind, NOW_S + 600.0) and not over.pools[REF].granted
    assert over.pools[REF].empty_since_s == NOW_S + 600.0
    assert availability_of(over, A.kind).closures[0].shortage is Shortage.STOCKOUT
    for other in (
        a_pool(SOUND),
        a_pool(SOUND, target=2, operation=operation(Kind.RESIZE, 2, 4)),
        a_pool(SOUND, target=2, updating=True),
    ):
        assert aged(replace(other, empty_since_s=1.0)).pools[REF].empty_since_s is None


def test_a_job_that_wants_none_is_noted_once_and_forgotten_when_it_wants_some() -> None:
    none = aged(a_pool(SOUND), wanted=0)
    assert none.unwanted_since_s == NOW_S
    assert learn(none, events.Ticked(NOW_S + 5)).unwanted_since_s == NOW_S
    assert learn(replace(none, wanted=1), events.Ticked(NOW_S + 5)).unwanted_since_s is None


def test_a_want_is_learned_in_order_and_its_end_is_final() -> None:
    allocator = an_allocator(want=5)
    assert learn(allocator, events.NodesWanted(NOW_S, 5, 1)).wanted == 3
    newer = learn(allocator, events.NodesWanted(NOW_S, 6, -1, ended="done"))
    assert (newer.want, newer.wanted, newer.ended) == (6, 0, "done")
    assert learn(newer, events.NodesWanted(NOW_S, 7, 1, ended="other")).ended == "done"
    assert learn(newer, events.NodesWanted(NOW_S, 7, 1)).ended == "done"
    criteria = some_criteria(max_workers=2)
    asks = events.NodesWanted(NOW_S, 6, 2, criteria=criteria)
    assert learn(allocator, asks).demand is None
    demand = learn(planned(allocator), asks).demand
    assert demand is not None and demand.criteria == criteria


def test_a_measured_profile_ends_the_wait_for_the_first_plan() -> None:
    allocator = planned(an_allocator(plans=Plans(not_before_s=5000.0)))
    profile = a_small_profile(gradient_bytes=5)
    after = learn(allocator, events.ProfileMeasured(NOW_S, profile))
    assert after.demand is not None and after.demand.profile == profile and after.plans.not_before_s is None
    assert learn(an_allocator(), events.ProfileMeasured(NOW_S, profile)).demand is None


@pytest.mark.parametrize(
    ("shortage", "pauses_s"),
    [
        (Shortage.STOCKOUT, [30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 900.0]),
        (Shortage.QUOTA, [900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 14_400.0]),
        (Shortage.REFUSED, [900.0, 1800.0]),
    ],
)
def test_pauses_of_a_shortage_double_up_to_their_limit(shortage: Shortage, pauses_s: list[float]) -> None:
    allocator = an_allocator()
    for failures, pause_s in enumerate(pauses_s, start=1):
        allocator = close(allocator, A.kind, shortage, "none", NOW_S, hint="ask")
        [closure] = availability_of(allocator, A.kind).closures
        assert closure == Closure(shortage, NOW_S, NOW_S + pause_s, failures, "none", "ask")
    known = close(allocator, A.kind, shortage, "none", NOW_S, until_s=NOW_S + 5)
    assert availability_of(known, A.kind).closures[0].failures == len(pauses_s)
    assert (is_closed(known, A.kind, NOW_S + 4.9), is_closed(known, A.kind, NOW_S + 5)) == (True, False)
    assert not is_closed(known, B.kind, NOW_S)


def test_each_kind_of_shortage_has_its_own_pause_and_the_longest_counts() -> None:
    allocator = close(an_allocator(), A.kind, Shortage.QUOTA, "quota", NOW_S)
    allocator = close(allocator, A.kind, Shortage.STOCKOUT, "none", NOW_S + 1)
    known = availability_of(allocator, A.kind)
    assert [each.shortage for each in known.closures] == [Shortage.QUOTA, Shortage.STOCKOUT]
    assert (known.closed_until_s, known.short_s) == (NOW_S + 900.0, NOW_S + 1)
    assert was_refused_recently(allocator, A.kind, NOW_S + 900.9)
    assert not was_refused_recently(allocator, A.kind, NOW_S + 901.0)
    assert not was_refused_recently(allocator, B.kind, NOW_S)


def test_machines_that_went_back_reopen_their_kind_and_the_quota_of_their_region() -> None:
    allocator = an_allocator()
    for kind in (A.kind, B.kind, C.kind):
        for shortage in (Shortage.QUOTA, Shortage.STOCKOUT):
            allocator = close(allocator, kind, shortage, "none", NOW_S)
        allocator = start_cooldown(allocator, kind, NOW_S)
    after = reopen_after(allocator, A.kind)
    left = [[each.shortage for each in availability_of(after, offer.kind).closures] for offer in (A, B, C)]
    both = [Shortage.QUOTA, Shortage.STOCKOUT]
    assert left == [[], [Shortage.STOCKOUT] if B.kind.region == A.kind.region else both, both]
    assert all(is_in_cooldown(after, offer.kind, NOW_S + 119.9) for offer in (A, B, C))
    assert not any(is_in_cooldown(after, offer.kind, NOW_S + 120.0) for offer in (A, B, C))
