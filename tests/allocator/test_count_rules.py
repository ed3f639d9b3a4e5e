"""Counts of nodes, the order of offers, quotas and caps, each at its limits."""

import math
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from controlplane.allocator.caps import most_for
from controlplane.allocator.counting import (
    at_most,
    ceiling,
    dismissed,
    expected,
    held,
    in_doubt,
    is_ours,
    is_paused,
    is_resting,
    is_settled,
    is_there,
    lost,
    not_counted,
    noticed,
    sidelined,
    spare,
    total,
    wants_none,
)
from controlplane.allocator.fleet_order import Supply, has_no_more, most_of, targets_in_order
from controlplane.allocator.fleet_order import expected as expected_of
from controlplane.allocator.offers import NAMED_AT_MOST, pool_plan, pool_ref
from controlplane.allocator.prospects import known_offers, supply_of
from controlplane.allocator.quota_room import Room, is_limited, learn_quotas, may_come
from controlplane.allocator.state import (
    Allocator,
    Block,
    Cutback,
    Doubt,
    Kind,
    Plans,
    Pool,
)
from controlplane.planning.market import Quotas
from controlplane.planning.plan import Change, Plan
from messages.ids import JobName
from messages.labels import JOB_LABEL, POOL_LABEL
from tests.allocator.built import (
    ALL,
    ASIDE,
    LEAVES,
    LOST,
    NOTICED,
    NOW_S,
    REF,
    SOUND,
    a_pool,
    an_allocator,
    operation,
    planned,
)
from tests.allocator.stage import JOB, US, A, B, C, an_offer
from tests.planning.builders import (
    gpus_of,
)


def test_each_node_is_counted_by_what_will_become_of_it() -> None:
    pool = a_pool(*ALL)
    assert (held(pool), not_counted(pool), noticed(pool), sidelined(pool), dismissed(pool)) == (1, 5, 1, 1, 1)
    assert [node.name for node in lost(pool)] == ["n2", "n6"]


@pytest.mark.parametrize(
    ("changes", "there", "ours", "settled"),
    [
        ({}, True, True, True),
        ({"exists": False}, False, True, True),
        ({"exists": False, "operation": operation(Kind.CREATE, 0, 1)}, True, False, False),
        ({"exists": False, "doubt": Doubt(1, "", 0, 0.0)}, True, False, False),
        ({"stopping": True}, True, False, False),
        ({"updating": True}, True, True, False),
    ],
)
def test_a_pool_is_changed_only_when_nothing_is_in_progress(
    changes: dict[str, Any], there: bool, ours: bool, settled: bool
) -> None:
    pool = replace(a_pool(SOUND), **changes)
    assert (is_there(pool), is_ours(pool), is_settled(pool)) == (there, ours, settled)


@pytest.mark.parametrize(("doubted", "most"), [(None, 3), (2, 3), (5, 5)])
def test_a_doubt_counts_with_the_highest_target(doubted: int | None, most: int) -> None:
    doubt = Doubt(doubted, "", 0, 0.0) if doubted is not None else None
    assert in_doubt(a_pool(target=3, doubt=doubt)) == most


RAISE, LOWER = operation(Kind.RESIZE, 3, 6), operation(Kind.RESIZE, 3, 1)


@pytest.mark.parametrize(
    ("pool", "plain", "quota", "costs"),
    [
        (a_pool(SOUND, SOUND, target=3), 3, 3, 3),
        (a_pool(SOUND, SOUND, SOUND, target=2), 3, 3, 3),
        (a_pool(SOUND, NOTICED, target=2), 1, 2, 1),
        (a_pool(SOUND, ASIDE, target=2), 1, 2, 2),
        (a_pool(SOUND, LOST, target=2), 2, 2, 2),
        (a_pool(SOUND, LOST, target=2, written_off=frozenset({"n2"})), 1, 1, 1),
        (a_pool(SOUND, target=2, vacant={"x": 1.0}), 2, 2, 2),
        (a_pool(SOUND, target=2, vacant={"x": 1.0}, written_off=frozenset({"x"})), 1, 1, 1),
        (a_pool(SOUND, target=2, written_off=frozenset({"x"})), 2, 2, 2),
        (a_pool(SOUND, target=4, abandoned=True), 1, 1, 1),
        (a_pool(SOUND, target=4, abandoned=True, operation=RAISE), 6, 6, 6),
        (a_pool(SOUND, target=4, stopping=True), 1, 1, 1),
        (a_pool(SOUND, target=3, operation=RAISE), 6, 6, 6),
        (a_pool(SOUND, target=3, operation=LOWER), 1, 1, 1),
        (a_pool(SOUND, target=3, operation=LOWER, hanging_s=1.0), 3, 3, 3),
        (a_pool(SOUND, target=3, doubt=Doubt(5, "", 0, 0.0)), 5, 5, 5),
        (a_pool(SOUND, NOTICED, target=2, doubt=Doubt(2, "", 0, 0.0)), 2, 2, 2),
        (a_pool(SOUND, target=2, vacant={"x": 1.0}, operation=operation(Kind.REMOVE, 2, 1, nodes=frozenset({"x"}))),
         1, 1, 1),
    ],
)  # fmt: skip
def test_the_most_that_may_come_counts_what_the_cloud_may_still_do(
    pool: Pool, plain: int, quota: int, costs: int
) -> None:
    assert at_most(pool) == plain
    assert at_most(pool, with_noticed=True) == quota
    assert at_most(pool, with_sidelined=True) == costs
    other = replace(pool, ref=pool_ref(JOB, B))
    assert (total([pool, other]), total([pool, other], but=REF)) == (2 * plain, plain)


@pytest.mark.parametrize(
    ("pool", "count"),
    [
        (a_pool(SOUND, SOUND, target=3), 3),
        (a_pool(SOUND, LOST, target=3), 2),
        (a_pool(SOUND, target=3, vacant={"x": 1.0}), 2),
        (a_pool(SOUND, target=3, hanging_s=1.0), 1),
        (a_pool(SOUND, target=3, hanging_s=1.0, operation=RAISE), 6),
        (a_pool(SOUND, target=3, stopping=True), 0),
        (a_pool(SOUND, target=3, operation=RAISE), 6),
        (a_pool(SOUND, LEAVES, target=2, operation=operation(Kind.RESIZE, 2, 3)), 2),
        (a_pool(SOUND, LOST, target=3, doubt=Doubt(5, "", 0, 0.0)), 5),
        (a_pool(SOUND, LOST, target=3, doubt=Doubt(5, "", 0, 0.0, done=True)), 2),
        (a_pool(SOUND, LOST, target=3, updating=True), 3),
    ],
)
def test_nodes_are_expected_unless_they_were_lost_or_did_not_come(pool: Pool, count: int) -> None:
    assert expected(pool) == count


def test_unused_nodes_that_were_never_ready_go_first_and_unready_ones_stay() -> None:
    fresh = {"ready": False, "was_ready": False}
    pool = a_pool(SOUND, SOUND, fresh, {"unready_s": 1.0}, LOST, SOUND)
    allocator = an_allocator(pool, released={US: frozenset({"n6", "n2", "n4", "n5"})})
    assert [node.name for node in spare(allocator, pool)] == ["n3", "n2", "n6"]
    assert [node.name for node in spare(replace(allocator, released={}), pool)] == ["n3"]


@pytest.mark.parametrize(
    ("wanted", "caps", "most", "paused", "resting"),
    [
        (8, (None, None), 4, False, False),
        (3, (None, None), 3, False, False),
        (2, (None, None), 2, False, False),
        (1, (None, None), 0, True, False),
        (8, (3, None), 3, False, False),
        (8, (None, 2), 2, False, False),
        (8, (2, 3), 2, False, False),
        (8, (1, None), 1, False, True),
    ],
)
def test_the_most_nodes_of_a_planned_job_are_its_criteria_and_its_caps(
    wanted: int, caps: tuple[int | None, int | None], most: int, paused: bool, resting: bool
) -> None:
    allocator = planned(an_allocator(wanted=wanted))
    assert ceiling(an_allocator(wanted=wanted)) == wanted
    idle, cutback = (Cutback(nodes, 5.0, 0) if nodes is not None else None for nodes in caps)
    capped = replace(allocator, idle_cap=idle, cutback=cutback)
    assert (ceiling(capped), is_paused(capped), is_resting(capped)) == (most, paused, resting)
    ended = replace(allocator, idle_cap=Cutback(None, 5.0, 0), cutback=Cutback(None, 5.0, 0))
    assert ceiling(ended) == ceiling(allocator) and not is_resting(ended)
    assert wants_none(capped) is paused
    assert wants_none(an_allocator(wanted=0)) and not wants_none(an_allocator(wanted=1))


def order(wanted: int, *supplies: Supply, offers: Any = (A, B, C), now_s: float = NOW_S) -> list[int]:
    return list(targets_in_order(wanted, offers, dict(zip(offers, supplies, strict=True)), now_s).values())


NONE = Supply()


@pytest.mark.parametrize(
    ("wanted", "supplies", "targets"),
    [
        (3, (NONE, NONE, NONE), [3, 0, 0]),
        (10, (NONE, NONE, NONE), [8, 2, 0]),
        (3, (Supply(held=1), Supply(held=1), NONE), [2, 1, 0]),
        (3, (Supply(room=1), NONE, NONE), [1, 2, 0]),
        (3, (Supply(aside=7), NONE, NONE), [1, 2, 0]),
        (3, (Supply(settled=False), NONE, NONE), [0, 3, 0]),
        (3, (Supply(reachable=False), NONE, NONE), [0, 3, 0]),
        (3, (Supply(busy_until_s=NOW_S + 1), NONE, NONE), [0, 3, 0]),
        (3, (Supply(busy_until_s=NOW_S), NONE, NONE), [3, 0, 0]),
        (3, (Supply(closed_until_s=NOW_S + 1), NONE, NONE), [0, 3, 0]),
        (3, (Supply(closed_until_s=NOW_S), NONE, NONE), [3, 0, 0]),
        (3, (Supply(cooldown_until_s=NOW_S + 1), NONE, NONE), [0, 3, 0]),
        (3, (Supply(cooldown_until_s=NOW_S), NONE, NONE), [3, 0, 0]),
        (3, (Supply(cooldown_until_s=NOW_S + 2), Supply(cooldown_until_s=NOW_S + 1), NONE), [0, 0, 3]),
        (17, (Supply(cooldown_until_s=NOW_S + 2), Supply(cooldown_until_s=NOW_S + 1), NONE), [1, 8, 8]),
        (2, (Supply(held=2), Supply(coming=1), NONE), [2, 0, 0]),
        (2, (Supply(held=1, coming=1), Supply(coming=1), NONE), [2, 0, 0]),
        (2, (Supply(coming=1, cooldown_until_s=NOW_S + 1), Supply(coming=1), Supply(coming=1)), [0, 1, 1]),
        (1, (Supply(held=1), Supply(held=1), Supply(held=1)), [1, 1, 1]),
        (1, (Supply(held=1), Supply(held=1, spare=1), Supply(held=1)), [1, 0, 1]),
        (1, (Supply(held=1, spare=1), Supply(held=1, spare=1), Supply(held=1)), [0, 0, 1]),
        (1, (Supply(held=1, spare=1), Supply(held=1, spare=1, settled=False), NONE), [0, 1, 0]),
        (1, (Supply(coming=3, closed_until_s=NOW_S + 1), NONE, NONE), [0, 1, 0]),
        (1, (Supply(coming=3, closed_until_s=NOW_S + 1, granted=True), NONE, NONE), [1, 0, 0]),
        (1, (Supply(coming=1, blocked=True), NONE, NONE), [1, 0, 0]),
        (1, (Supply(coming=1, blocked=True, settled=False), NONE, NONE), [1, 0, 0]),
        (0, (Supply(coming=2, settled=False), NONE, NONE), [2, 0, 0]),
    ],
)  # fmt: skip
def test_targets_follow_the_order_of_the_fleet(wanted: int, supplies: tuple[Supply, ...], targets: list[int]) -> None:
    assert order(wanted, *supplies) == targets


def test_what_an_offer_may_have_is_its_size_less_what_stands_aside() -> None:
    assert (most_of(A, NONE), most_of(A, Supply(aside=2)), most_of(A, Supply(aside=2, room=7))) == (8, 6, 6)
    assert most_of(A, Supply(room=1)) == 1
    assert expected_of(Supply(held=1, coming=2), NOW_S) == 3
    assert expected_of(Supply(held=1, coming=2, blocked=True), NOW_S) == 1
    assert [has_no_more(Supply(closed_until_s=until_s), NOW_S) for until_s in (None, NOW_S, NOW_S + 1)] == [
        False, False, True,
    ]  # fmt: skip


def test_the_supply_of_an_offer_is_what_its_pool_cluster_and_zone_say() -> None:
    pool = a_pool(SOUND, ASIDE, LOST, target=5, failures=3, retry_s=NOW_S + 9, granted=True)
    allocator = an_allocator(pool, released={US: frozenset({"n1"})})
    supply = supply_of(allocator, A, NOW_S)
    assert supply == Supply(held=1, coming=2, aside=1, spare=1, granted=True, busy_until_s=NOW_S + 9)
    assert supply_of(an_allocator(replace(pool, failures=2)), A, NOW_S).busy_until_s is None
    assert supply_of(an_allocator(replace(pool, stopping=True)), A, NOW_S) == Supply(settled=False)
    for changes in ({"broken": True}, {"hanging_s": 1.0}):
        assert not supply_of(an_allocator(replace(pool, **changes)), A, NOW_S).reachable
    assert not supply_of(replace(allocator, clusters={US: False}), A, NOW_S).reachable
    assert not supply_of(replace(allocator, clusters={}), A, NOW_S).reachable
    block = Block(0.0, NOW_S + 1, 1, "no image")
    blocked = supply_of(replace(allocator, blocks={US: block}), A, NOW_S)
    assert (blocked.blocked, blocked.reachable, blocked.room) == (True, False, 1)
    assert blocked.cooldown_until_s == math.inf
    tried = supply_of(replace(allocator, blocks={US: replace(block, until_s=NOW_S)}), A, NOW_S)
    assert (tried.blocked, tried.reachable, tried.room) == (False, True, 1)


def test_found_pools_come_after_the_offers_of_the_fleet() -> None:
    found = replace(an_offer("us-z"), pool="found")
    pool = Pool(pool_ref(JOB, found), found, target=1, exists=True)
    allocator = an_allocator(a_pool(SOUND), pool)
    assert known_offers(allocator) == [A, B, C, found]
    assert not supply_of(allocator, found, NOW_S).reachable


def test_a_pool_is_named_after_its_job_within_the_limit_of_the_cloud() -> None:
    ref = pool_ref(JobName("j" * 40), A)
    assert ref.cluster == US and ref.pool.startswith(f"tw-{'j' * NAMED_AT_MOST}-") and len(ref.pool) == 34
    assert pool_ref(JOB, A) == pool_ref(JOB, replace(A, max_nodes=99)) != pool_ref(JOB, B)
    assert pool_ref(JobName("j" * 21 + "-x"), A).pool.startswith(f"tw-{'j' * 21}-")
    plan = pool_plan(JOB, A, 2)
    assert (plan.name, plan.kind, plan.size) == (REF.pool, A.kind, 2)
    assert plan.labels == {JOB_LABEL: JOB, POOL_LABEL: REF.pool}


def with_quota(left: int, *pools: Pool) -> Allocator:
    key = gpus_of(A.kind.region)
    return an_allocator(*pools, quotas=Quotas({key: left}, {A.kind: {key: 1}}))


def test_a_quota_leaves_room_beside_everything_that_may_come() -> None:
    allocator = with_quota(4, a_pool(SOUND, NOTICED, target=2))
    assert may_come(allocator) == {A.kind: 1}
    assert may_come(allocator, with_noticed=True) == {A.kind: 2}
    assert may_come(allocator, but=REF) == {}
    room = Room(allocator)
    assert (room.take(A, 1), room.take(A, 5), room.take(A, 1)) == (1, 1, 0)
    assert room.full_for(A) == [gpus_of(A.kind.region)] and room.take(C, 3) == 3


def test_a_job_is_limited_by_a_quota_while_it_lacks_nodes_that_have_no_room() -> None:
    limited = with_quota(1, a_pool(SOUND))
    assert is_limited(limited)
    assert not is_limited(replace(limited, wanted=1)) and not is_limited(replace(limited, ended="done"))
    assert not is_limited(with_quota(2, a_pool(SOUND)))
    plan = Plan(placement={}, ask={}, change=Change.KEEP, score=None, why="", limited_by=(gpus_of("us-central1"),))
    assert is_limited(planned(replace(limited, plans=Plans(plan=plan))))
    assert not is_limited(planned(replace(limited, plans=Plans(plan=structs.replace(plan, limited_by=())))))
    assert not is_limited(planned(limited))


@pytest.mark.parametrize(("at_s", "is_learned"), [(NOW_S, False), (NOW_S + 0.1, True)])
def test_quotas_from_before_a_refusal_teach_nothing(at_s: float, is_learned: bool) -> None:
    quotas = Quotas({gpus_of("us"): 9})
    after = learn_quotas(an_allocator(quota_refused_s=NOW_S), quotas, at_s)
    assert (after.quotas == quotas) is is_learned
    assert learn_quotas(an_allocator(), quotas, 0.0).quotas == quotas


@pytest.mark.parametrize(
    ("pool", "wanted", "most"),
    [
        (a_pool(SOUND, target=1), 3, 3),
        (a_pool(SOUND, target=1), 9, 3),
        (a_pool(SOUND, ASIDE, target=2), 2, 3),
        (a_pool(*[ASIDE] * 7, target=7), 3, 8),
    ],
)
def test_a_pool_is_raised_within_the_wanted_nodes_and_a_slot_for_each_that_stands_aside(
    pool: Pool, wanted: int, most: int
) -> None:
    assert most_for(an_allocator(pool), pool, wanted) == most
    other = Pool(pool_ref(JOB, B), B, target=1, exists=True)
    assert most_for(an_allocator(pool, other), pool, 9) == min(8, 2 + sidelined(pool))
