"""What one decision requests of the cloud: which pool is lowered, raised or deleted, by how much, and which way."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.allocator import events
from controlplane.allocator.counting import at_most
from controlplane.allocator.decide import decide
from controlplane.allocator.effects import DeletePool, FollowMarket, ListPools, Place
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.reconcile import without_slotless
from controlplane.allocator.state import Allocator, Doubt, Kind, Operation, Pool
from tests.allocator.built import (
    LEAVES,
    LOST,
    NOW_S,
    REF,
    SOUND,
    a_pool,
    an_allocator,
    operation,
    planned,
)
from tests.allocator.stage import JOB, US, A, B, C, asked
from tests.planning.builders import some_criteria


def settled(*pools: Pool, **changes: Any) -> Allocator:
    """The pools were listed just now."""
    known = an_allocator(*pools)
    listing = replace(known.listing, learned_s=NOW_S, asked_s=None, unlisted_s=None)
    return replace(known, **{"listing": listing, "unwanted_since_s": None, **changes})


def requests(allocator: Allocator, at_s: float = NOW_S) -> list[tuple[str, ...]]:
    return asked(list(decide(allocator, events.Ticked(at_s)).effects), (A, B, C))


LATER: dict[str, Any] = {"notice_until_s": NOW_S + 60.0}
JUST_LOST: dict[str, Any] = {"lost_s": NOW_S - 1.0}
KEPT: dict[str, Any] = {"sidelined_s": NOW_S - 1.0}
SEEN: dict[str, Any] = {"sighted_s": NOW_S}


@pytest.mark.parametrize(
    ("wanted", "pool", "expected"),
    [
        (2, a_pool(SOUND, SOUND, **SEEN), []),
        (3, a_pool(SOUND, SOUND, **SEEN), [("resize", "us-a", "3")]),
        (3, a_pool(SOUND, SOUND, target=3, **SEEN), []),
        (3, a_pool(SOUND, SOUND, LATER, **SEEN), []),
        (3, a_pool(SOUND, SOUND, KEPT, **SEEN), [("resize", "us-a", "4")]),
        (3, a_pool(SOUND, SOUND, retry_s=NOW_S + 1, **SEEN), []),
        (3, a_pool(SOUND, SOUND, retry_s=NOW_S, **SEEN), [("resize", "us-a", "3")]),
        (3, a_pool(SOUND, SOUND, updating=True, **SEEN), [("create", "us-b", "1")]),
        (3, Pool(REF, A), [("create", "us-a", "3")]),
        (2, a_pool(SOUND, SOUND, target=4, **SEEN), [("resize", "us-a", "2")]),
        (2, a_pool(SOUND, SOUND, target=4), [("resize", "us-a", "2")]),
        (2, a_pool(SOUND, SOUND, target=4, adopted=True), []),
        (2, a_pool(SOUND, SOUND, target=4, sighted_s=NOW_S - 15.0), [("resize", "us-a", "2")]),
        (2, a_pool(SOUND, SOUND, target=4, sighted_s=NOW_S - 15.1), []),
        (2, a_pool(SOUND, SOUND, target=4, sighted_s=NOW_S - 2, filled_s=NOW_S - 1), []),
        (2, a_pool(SOUND, SOUND, target=4, sighted_s=NOW_S - 1, filled_s=NOW_S - 1), [("resize", "us-a", "2")]),
        (2, a_pool(SOUND, SOUND, target=4, sighted_s=NOW_S - 20, filled_s=NOW_S - 15), []),
        (2, a_pool(SOUND, SOUND, target=4, vacant={"x": NOW_S}, **SEEN), [("remove", "us-a", "x")]),
        (2, a_pool(SOUND, SOUND, JUST_LOST, target=3, **SEEN), [("remove", "us-a", "n3")]),
        (1, a_pool(SOUND, SOUND, **SEEN), []),
    ],
)  # fmt: skip
def test_a_pool_is_brought_to_its_target(wanted: int, pool: Pool, expected: list[tuple[str, ...]]) -> None:
    assert requests(settled(pool, wanted=wanted)) == expected


def test_unused_nodes_are_removed_by_name_and_only_as_many_as_are_surplus() -> None:
    pool = a_pool(SOUND, SOUND, SOUND, **SEEN)
    free = {US: frozenset({"n1", "n3"})}
    assert requests(settled(pool, wanted=2, released=free)) == [("remove", "us-a", "n1")]
    assert requests(settled(pool, wanted=1, released=free)) == [("remove", "us-a", "n1", "n3")]
    assert requests(settled(pool, wanted=3, released=free)) == []


@pytest.mark.parametrize(("lost_s", "removed"), [(NOW_S - 59.9, []), (NOW_S - 60.0, [("remove", "us-a", "n3")])])
def test_a_lost_node_that_stays_is_removed_by_name_after_a_minute(lost_s: float, removed: list[Any]) -> None:
    pool = a_pool(SOUND, SOUND, {"lost_s": lost_s}, target=3, **SEEN)
    assert requests(settled(pool, wanted=3))[:1] == removed


@pytest.mark.parametrize(
    "changes",
    [{"operation": operation(Kind.RESIZE, 4, 5)}, {"doubt": Doubt(4, "", 99, NOW_S + 9)}, {"stopping": True}],
)
def test_a_pool_with_something_in_progress_is_left_alone(changes: dict[str, Any]) -> None:
    pool = a_pool(SOUND, SOUND, target=4, **{**SEEN, **changes})
    assert requests(settled(pool, wanted=2)) == []


def test_an_operation_is_noted_with_all_that_it_changes() -> None:
    pool = a_pool(SOUND, SOUND, SOUND, JUST_LOST, target=5, vacant={"x": NOW_S}, retry_s=NOW_S - 5, **SEEN)
    allocator = settled(pool, wanted=3, operations=7)
    decided = decide(allocator, events.Ticked(NOW_S)).state
    begun = decided.pools[REF]
    assert decided.operations == 8
    names = frozenset({"x", "n4"})
    assert begun.operation == Operation(8, Kind.REMOVE, 5, 3, NOW_S, names, frozenset({"x"}))
    assert (begun.touched, begun.retry_s, begun.target) == (allocator.listing.number, None, 5)
    raised = decide(settled(a_pool(SOUND, target=1, vacant={"x": 1.0}, **SEEN), wanted=3), events.Ticked(NOW_S)).state
    operation = raised.pools[REF].operation
    assert operation is not None and (operation.kind, operation.before, operation.target) == (Kind.RESIZE, 1, 3)


FOUND = Offer(US, "us-z", "n1-standard-8", 4, "nvidia-tesla-t4", 1, pool="found")


def a_found_pool(**changes: Any) -> Pool:
    return Pool(pool_ref(JOB, FOUND), FOUND, exists=True, adopted=True, **changes)


@pytest.mark.parametrize(
    ("pool", "is_deleted"),
    [
        (a_found_pool(), True),
        (a_found_pool(target=1), False),
        (a_found_pool(operation=operation(Kind.RESIZE, 1, 0)), False),
        (a_pool(broken=True), True),
        (a_pool(SOUND, broken=True), False),
        (a_pool(), False),
        (Pool(REF, A, broken=True), False),
    ],
)
def test_a_pool_is_deleted_when_it_is_empty_and_will_not_be_raised(pool: Pool, is_deleted: bool) -> None:
    effects = decide(settled(pool, wanted=1), events.Ticked(NOW_S)).effects
    assert any(isinstance(effect, DeletePool) for effect in effects) is is_deleted


@pytest.mark.parametrize(
    ("since_s", "pool", "is_deleted"),
    [
        (NOW_S - 90.0, a_pool(SOUND, **SEEN), True),
        (NOW_S - 89.9, a_pool(SOUND, **SEEN), False),
        (NOW_S - 90.0, a_pool(**SEEN), False),
        (NOW_S - 90.0, a_pool(target=1, **SEEN), False),
        (NOW_S - 90.0, a_pool(SOUND, target=0, **SEEN), True),
        (NOW_S - 90.0, a_pool(SOUND, updating=True, **SEEN), True),
        (NOW_S - 90.0, a_pool(SOUND, retry_s=NOW_S + 1, **SEEN), False),
        (NOW_S - 90.0, a_pool(SOUND, retry_s=NOW_S, **SEEN), True),
    ],
)
def test_pools_that_nobody_wants_are_deleted_after_their_time(since_s: float, pool: Pool, is_deleted: bool) -> None:
    allocator = settled(pool, wanted=0, unwanted_since_s=since_s)
    effects = decide(allocator, events.Ticked(NOW_S)).effects
    assert any(isinstance(effect, DeletePool) for effect in effects) is is_deleted


@pytest.mark.parametrize(
    ("pool", "learned_s", "is_finished", "is_deleted"),
    [
        (a_pool(SOUND), NOW_S, False, True),
        (a_pool(SOUND, operation=operation(Kind.DELETE, 1, 0)), NOW_S, False, False),
        (Pool(REF, A, doubt=Doubt(1, "", 99, NOW_S + 9)), NOW_S, False, False),
        (Pool(REF, A), NOW_S - 10.0, True, False),
        (Pool(REF, A), NOW_S - 10.1, False, False),
    ],
)
def test_a_job_that_ended_is_finished_when_a_late_listing_shows_no_pool(
    pool: Pool, learned_s: float, is_finished: bool, is_deleted: bool
) -> None:
    known = settled(pool, ended="done", quiet_since_s=NOW_S - 20.0)
    allocator = replace(known, listing=replace(known.listing, learned_s=learned_s))
    decision = decide(allocator, events.Ticked(NOW_S))
    assert decision.state.finished is is_finished
    assert any(isinstance(effect, DeletePool) for effect in decision.effects) is is_deleted


def test_nothing_is_changed_before_the_first_listing_which_is_requested_at_once() -> None:
    known = settled(a_pool(SOUND, target=4, **SEEN), wanted=1)
    unknown = replace(known, listing=replace(known.listing, learned_s=None, number=3))
    decision = decide(unknown, events.Ticked(NOW_S))
    assert [effect for effect in decision.effects if not isinstance(effect, Place)] == [
        ListPools(4, "nothing is known yet")
    ]
    assert (decision.state.listing.number, decision.state.listing.asked_s) == (4, NOW_S)
    assert decide(decision.state, events.Ticked(NOW_S + 59.9)).effects == ()
    [again] = decide(decision.state, events.Ticked(NOW_S + 60.0)).effects
    assert isinstance(again, ListPools) and again.listing == 5


def test_a_placement_is_sent_when_it_changes_and_a_market_is_followed_when_criteria_do() -> None:
    allocator = settled(a_pool(SOUND, SOUND, SOUND, **SEEN), placed=None)
    first = decide(allocator, events.Ticked(NOW_S))
    [place] = [effect for effect in first.effects if isinstance(effect, Place)]
    assert (place.workers, place.want, place.at_once, first.state.placed) == ({US: 3}, allocator.want, False, place)
    assert not any(isinstance(effect, Place) for effect in decide(first.state, events.Ticked(NOW_S)).effects)
    criteria = some_criteria(min_workers=2, max_workers=3)
    asks = events.NodesWanted(NOW_S, allocator.want + 1, 3, criteria=criteria)
    follows = decide(planned(allocator), asks)
    assert FollowMarket(criteria) in follows.effects
    same = decide(follows.state, replace(asks, number=allocator.want + 2))
    assert not any(isinstance(effect, FollowMarket) for effect in same.effects)


def test_dismissed_nodes_are_removed_when_the_job_has_left_them() -> None:
    pool = a_pool(SOUND, SOUND, SOUND, LEAVES, **SEEN)
    allocator = planned(settled(pool, wanted=4, released={US: frozenset({"n4"})}))
    assert requests(allocator)[:1] == [("remove", "us-a", "n4")]
    assert requests(replace(allocator, released={})) == []


@pytest.mark.parametrize(("target", "left"), [(0, ()), (1, ("n2",)), (2, ("n1", "n2"))])
def test_a_raise_forgets_lost_nodes_that_have_no_slot(target: int, left: tuple[str, ...]) -> None:
    pool = a_pool(LOST, LOST | {"lost_s": 2.0}, target=target, written_off=frozenset({"n1"}))
    after = without_slotless(pool)
    assert tuple(after.nodes) == left
    assert {name for name, _ in after.removed} == pool.nodes.keys() - left
    assert after.written_off == pool.written_off & after.nodes.keys()
    raised = replace(after, target=target + 1)
    assert at_most(raised) == target + 1 - len(after.written_off)


def test_a_lost_node_of_unknown_identity_keeps_its_slot() -> None:
    known = a_pool(LOST, target=0)
    pool = replace(known, nodes={name: replace(node, uid="") for name, node in known.nodes.items()})
    assert without_slotless(pool) is pool
