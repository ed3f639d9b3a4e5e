"""What the end of an operation changes, and when the pools are listed again."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.allocator import events
from controlplane.allocator.availability import (
    availability_of,
    close,
    is_closed,
    is_in_cooldown,
)
from controlplane.allocator.learn import learn
from controlplane.allocator.learn_outcome import learn_outcome
from controlplane.allocator.offers import pool_ref
from controlplane.allocator.state import (
    Allocator,
    Doubt,
    Kind,
    Operation,
    Pool,
    Shortage,
)
from controlplane.allocator.timing import next_listing, settles, wake_at_s
from controlplane.clouds import outcomes
from tests.allocator.built import (
    LOST,
    NOW_S,
    REF,
    SOUND,
    a_pool,
    an_allocator,
    operation,
)
from tests.allocator.stage import EU, JOB, US, A, B


def ended(outcome: outcomes.Outcome, pool: Pool, **changes: Any) -> Allocator:
    return learn_outcome(an_allocator(pool, **changes), events.OperationEnded(NOW_S, REF, 1, outcome))


UP, DOWN = operation(Kind.RESIZE, 2, 4), operation(Kind.RESIZE, 2, 1)
CREATE, DELETE = operation(Kind.CREATE, 0, 4), operation(Kind.DELETE, 2, 0)
REMOVE = operation(Kind.REMOVE, 2, 1, nodes=frozenset({"n2", "x"}), vacant=frozenset({"x"}))
FAILED = {"failures": 2, "retry_s": 5.0, "last_error": "old", "requests_fewer": True, "hanging_s": 4.0}
PROBLEM = outcomes.Unexplained("odd")


def changed(act: Operation, **changes: Any) -> Pool:
    return a_pool(SOUND, SOUND, operation=act, vacant={"x": 1.0, "y": 1.0}, **{**FAILED, "abandoned": True, **changes})


@pytest.mark.parametrize("act", [UP, DOWN, REMOVE])
def test_an_operation_that_is_done_leaves_the_pool_as_asked(act: Operation) -> None:
    pool = ended(outcomes.Done(), changed(act, granted=True)).pools[REF]
    assert (pool.operation, pool.target, pool.exists) == (None, act.target, True)
    assert (pool.failures, pool.retry_s, pool.last_error, pool.requests_fewer) == (0, None, "", False)
    assert (pool.hanging_s, pool.abandoned, pool.granted) == (None, False, not act.raises)
    assert pool.filled_s == (NOW_S if act.raises else None)
    removes = act is REMOVE
    assert [*pool.nodes] == (["n1"] if removes else ["n1", "n2"])
    assert pool.vacant == ({"y": 1.0} if removes else {"x": 1.0, "y": 1.0})
    assert pool.removed == ({("n2", "u2"), ("x", "")} if removes else set())
    assert (pool.doubt is not None and pool.doubt.done and pool.doubt.settles_s == NOW_S) is removes


def test_a_pool_that_is_deleted_is_gone_and_a_raise_reopens_its_zone() -> None:
    allocator = ended(outcomes.Done(), changed(DELETE))
    assert (allocator.pools, allocator.deleted) == ({}, {REF: allocator.listing.number})
    assert allocator.quiet_since_s == NOW_S
    for act in (UP, DOWN):
        closed = close(an_allocator(changed(act)), A.kind, Shortage.STOCKOUT, "none", NOW_S)
        after = learn_outcome(closed, events.OperationEnded(NOW_S, REF, 1, outcomes.Done()))
        assert is_closed(after, A.kind, NOW_S) is not act.raises


def test_a_late_outcome_teaches_nothing() -> None:
    allocator = an_allocator(changed(UP))
    for event in (
        events.OperationEnded(NOW_S, REF, 2, outcomes.Done()),
        events.OperationEnded(NOW_S, pool_ref(JOB, B), 1, outcomes.Done()),
    ):
        assert learn_outcome(allocator, event) is allocator
    idle = an_allocator(a_pool(SOUND))
    assert learn_outcome(idle, events.OperationEnded(NOW_S, REF, 1, outcomes.Done())) is idle


@pytest.mark.parametrize(
    ("outcome", "acts", "shortage", "doubted", "settles_s", "cools"),
    [
        (outcomes.Refused("no", "ask"), (UP,), Shortage.REFUSED, True, NOW_S, False),
        (outcomes.Refused("no", "ask"), (DOWN, REMOVE, DELETE), None, True, NOW_S, False),
        (outcomes.StockedOut("no"), (UP, CREATE, DOWN), Shortage.STOCKOUT, False, None, False),
        (outcomes.StockedOut("no"), (REMOVE, DELETE), Shortage.STOCKOUT, True, NOW_S, False),
        (outcomes.Unfinished("no"), (UP, CREATE), Shortage.STOCKOUT, False, None, False),
        (outcomes.Unfinished("no"), (DOWN, REMOVE, DELETE), None, True, NOW_S, False),
        (outcomes.AlreadyExists("no"), (CREATE,), None, True, NOW_S, False),
        (outcomes.NotFound("no"), (CREATE, UP), None, True, NOW_S, False),
        (outcomes.Unreachable("no"), (UP, CREATE), None, True, NOW_S + 2.0, True),
        (outcomes.Unreachable("no"), (DOWN, DELETE), None, True, NOW_S + 2.0, False),
        (outcomes.Unexplained("no"), (UP, DOWN), None, True, NOW_S, False),
        (outcomes.Busy("no"), (UP, DOWN), None, False, None, False),
        (outcomes.Throttled("no"), (UP, DOWN), None, False, None, False),
    ],
)
def test_a_failed_operation_closes_doubts_or_waits(
    outcome: outcomes.Outcome,
    acts: tuple[Operation, ...],
    shortage: Shortage | None,
    doubted: bool,
    settles_s: float | None,
    cools: bool,
) -> None:
    for act in acts:
        allocator = ended(outcome, changed(act))
        pool = allocator.pools[REF]
        assert pool.operation is None and pool.last_error == "no" and pool.touched == allocator.listing.number
        assert [each.shortage for each in availability_of(allocator, A.kind).closures] == [shortage] * bool(shortage)
        assert (pool.doubt is not None, is_in_cooldown(allocator, A.kind, NOW_S)) == (doubted, cools)
        if pool.doubt is not None:
            most = max(act.before, act.target)
            assert pool.doubt == Doubt(most, "no", allocator.listing.number, settles_s or 0.0)
        waits = doubted or isinstance(outcome, outcomes.Busy | outcomes.Throttled)
        assert (pool.failures, pool.retry_s) == ((3, NOW_S + 4.0) if waits else (0, None))
        gone = isinstance(outcome, outcomes.NotFound) and act is CREATE
        assert allocator.clusters[US] is not gone


def test_an_unfinished_raise_hangs_and_a_partly_done_one_is_granted() -> None:
    hangs = ended(outcomes.Unfinished("slow"), changed(UP)).pools[REF]
    assert (hangs.hanging_s, hangs.resizing, hangs.target, hangs.granted) == (NOW_S, True, 4, False)
    for size, target in ((3, 3), (9, 4)):
        allocator = ended(outcomes.PartlyDone(size, outcomes.StockedOut("no")), changed(UP))
        pool = allocator.pools[REF]
        assert (pool.target, pool.granted, pool.resizing) == (target, True, True)
        assert is_closed(allocator, A.kind, NOW_S)


@pytest.mark.parametrize(("failures", "refused"), [(3, False), (4, True)])
def test_an_offer_counts_as_refused_after_five_errors_that_nobody_can_explain(failures: int, refused: bool) -> None:
    for act in (UP, DOWN):
        allocator = ended(PROBLEM, changed(act, failures=failures))
        assert is_closed(allocator, A.kind, NOW_S) is (refused and act.raises)


@pytest.mark.parametrize(("failures", "pause_s"), [(0, 1.0), (1, 2.0), (4, 16.0), (5, 30.0), (9, 30.0)])
def test_retries_of_a_pool_pause_longer_each_time(failures: int, pause_s: float) -> None:
    assert ended(outcomes.Busy("no"), changed(DOWN, failures=failures)).pools[REF].retry_s == NOW_S + pause_s


def short_of(available: float, in_call: bool = True) -> outcomes.QuotaExceeded:
    shortfall = outcomes.Shortfall("GPUS", is_regional=True, requested=2.0, available=available)
    return outcomes.QuotaExceeded("quota", (shortfall,), in_call)


def test_what_fits_into_a_quota_is_requested_once() -> None:
    clean_up = {"requests_fewer": False, "failures": 0, "retry_s": None}
    fewer = ended(short_of(1.0), changed(UP, **clean_up))
    assert fewer.pools[REF].requests_fewer and not is_closed(fewer, A.kind, NOW_S)
    assert fewer.quota_refused_s == NOW_S and [*fewer.quotas.left.values()] == [3]
    again = ended(short_of(1.0), changed(UP))
    assert not again.pools[REF].requests_fewer and is_closed(again, A.kind, NOW_S)
    none = ended(short_of(0.0), changed(UP, **clean_up))
    assert not none.pools[REF].requests_fewer and is_closed(none, A.kind, NOW_S)
    late = ended(short_of(1.0, in_call=False), changed(UP, **clean_up))
    assert late.pools[REF].doubt is not None and is_closed(late, A.kind, NOW_S)
    assert none.pools[REF].doubt is None and none.pools[REF].last_error == "quota"


@pytest.mark.parametrize(
    ("node", "until_s"),
    [(SOUND, 900.0), (LOST, 30.0), ({"notice_until_s": NOW_S + 15.0}, 45.0), ({"notice_until_s": NOW_S + 1e4}, 900.0)],
)
def test_a_quota_is_free_again_when_lost_machines_of_the_region_are_gone(node: dict[str, Any], until_s: float) -> None:
    allocator = ended(outcomes.QuotaExceeded("quota"), a_pool(node, operation=UP))
    [closure] = availability_of(allocator, A.kind).closures
    assert (closure.until_s, closure.shortage) == (NOW_S + until_s, Shortage.QUOTA)


@pytest.mark.parametrize(
    ("listing", "learned_s", "is_shown"),
    [(3, NOW_S, False), (2, NOW_S, True), (2, NOW_S - 0.1, False), (2, None, False)],
)
def test_only_a_later_listing_shows_what_a_lost_answer_was(
    listing: int, learned_s: float | None, is_shown: bool
) -> None:
    known = replace(an_allocator().listing, learned=3, learned_s=learned_s)
    assert settles(known, Doubt(1, "", listing, NOW_S)) is is_shown


def due(allocator: Allocator) -> tuple[float, str]:
    found = next_listing(allocator)
    assert found is not None
    return found


def test_pools_are_listed_as_soon_as_something_needs_it() -> None:
    listing = replace(an_allocator().listing, learned=3, learned_s=NOW_S, asked_s=None, unlisted_s=None)

    def at_s(pool: Pool, **changes: Any) -> float:
        return due(an_allocator(pool, listing=listing, quiet_since_s=NOW_S - 3.0, **changes))[0] - NOW_S

    assert at_s(a_pool(SOUND)) == 30.0
    assert at_s(a_pool(SOUND, updating=True)) == 10.0
    assert at_s(a_pool(SOUND, doubt=Doubt(1, "", 3, NOW_S + 7))) == 7.0
    assert at_s(a_pool(SOUND, doubt=Doubt(1, "", 2, NOW_S))) == 2.0
    assert at_s(a_pool(SOUND, doubt=Doubt(1, "", 2, NOW_S), failures=2)) == 8.0
    assert at_s(a_pool(SOUND, doubt=Doubt(1, "", 3, NOW_S + 7), operation=UP)) == 30.0
    assert at_s(a_pool(SOUND, {"lost_s": NOW_S - 1})) == 3.0
    assert at_s(a_pool(SOUND, {"lost_s": NOW_S - 5})) == 5.0
    assert at_s(a_pool(SOUND, {"lost_s": NOW_S + 4}, vacant={"x": NOW_S - 9})) == 7.0
    assert at_s(a_pool(SOUND, vacant={"x": NOW_S - 4}, updating=True)) == 10.0
    assert at_s(a_pool(SOUND), ended="done") == 10.0
    assert at_s(Pool(REF, A), ended="done") == 7.0
    finished = an_allocator(a_pool(SOUND), listing=listing, finished=True)
    assert next_listing(finished) is None and wake_at_s(finished, NOW_S) is None


def test_a_cluster_that_became_ready_is_listed_and_its_reason_is_kept_until_then() -> None:
    allocator = an_allocator(clusters={US: True, EU: False})
    waits = learn(allocator, events.ReadinessSeen(NOW_S, EU, "a controller"))
    assert (waits.unready[EU], waits.listing.unlisted_s) == ("a controller", allocator.listing.unlisted_s)
    ready = learn(waits, events.ReadinessSeen(NOW_S, EU))
    assert (ready.unready[EU], ready.listing.unlisted_s, ready.clusters[EU]) == ("", NOW_S, False)
    assert learn(allocator, events.ReadinessSeen(NOW_S, US)).listing.unlisted_s == allocator.listing.unlisted_s
