"""Idle nodes, inputs of plans, and where workers are placed, each at its limits."""

import math
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from controlplane.allocator.choices import by_choice, current_capacity_of, within_reach
from controlplane.allocator.facts import moved_by_a_little, note, plan_due_s, target_workers
from controlplane.allocator.fleet_order import Supply
from controlplane.allocator.idle import forget_idle_cap, idle_cap, idle_nodes, note_free
from controlplane.allocator.offers import pool_ref
from controlplane.allocator.placement import free_nodes, placement_of
from controlplane.allocator.state import (
    Availability,
    Cutback,
    Kind,
    Plans,
    Pool,
)
from controlplane.allocator.use import cancel_dismissals, dismissed_and_left, forget_cutback
from controlplane.planning.market import Market
from controlplane.planning.plan import Change, Plan
from messages.clusters import ClusterHeartbeat, NodeObservation, Presence, WorkerObservation
from messages.ids import ClusterName, JobName, WorkerId
from messages.workers import WorkerPhase, WorkerStatus
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
    some_nodes,
)
from tests.allocator.planned_stage import IOWA, a_running_stage
from tests.allocator.stage import EU, JOB, US, A, B, C
from tests.planning.builders import (
    IOWA_A,
    OREGON,
    a_choice,
    a_market,
    an_option,
    gpus_of,
)


def test_a_node_is_idle_from_when_the_job_first_left_it() -> None:
    allocator = an_allocator(a_pool(SOUND, SOUND))
    once = note_free(allocator, US, ("n1",), 10.0)
    twice = note_free(once, US, ("n1", "n2"), 20.0)
    assert (twice.idle_since_s[US], twice.released[US]) == (
        {"n1": 10.0, "n2": 20.0}, frozenset({"n1", "n2"}),
    )  # fmt: skip
    assert note_free(twice, US, ("n2", "n1"), 30.0) is twice
    assert note_free(twice, US, ("n2",), 30.0).idle_since_s[US] == {"n2": 20.0}
    assert note_free(allocator, US, (), 30.0) is allocator


@pytest.mark.parametrize(
    ("count", "after_s", "names"),
    [
        (4, 599.9, []),
        (4, 600.0, ["n1", "n2"]),
        (3, 600.0, ["n1"]),
        (2, 600.0, []),
        (1, 600.0, ["n1"]),
    ],
)
def test_overdue_idle_nodes_go_down_to_the_minimum_or_all_if_there_are_fewer(
    count: int, after_s: float, names: list[str]
) -> None:
    pool = a_pool(*[SOUND] * count)
    idle = {US: dict.fromkeys(pool.nodes, NOW_S)}
    allocator = planned(an_allocator(pool, idle_since_s=idle))
    assert idle_nodes(allocator, NOW_S + after_s) == ({REF: names} if names else {})
    assert idle_nodes(replace(allocator, demand=None), NOW_S + 1e6) == {}
    busy = replace(allocator, pools={REF: replace(pool, operation=operation(Kind.RESIZE, 2, 4))})
    assert idle_nodes(busy, NOW_S + 1e6) == {}
    young = replace(pool, nodes={name: replace(node, first_seen_s=NOW_S + 9) for name, node in pool.nodes.items()})
    assert idle_nodes(replace(allocator, pools={REF: young}), NOW_S + 608.9) == {}


@pytest.mark.parametrize(
    ("left", "known", "cap"),
    [
        (2, None, Cutback(2, math.inf, 0)),
        (1, None, Cutback(1, NOW_S + 600.0, 0)),
        (1, Cutback(1, 5.0, 0), Cutback(1, NOW_S + 600.0, 0)),
        (1, Cutback(None, 5.0, 0), Cutback(1, NOW_S + 1200.0, 1)),
        (1, Cutback(None, 5.0, 1), Cutback(1, NOW_S + 2400.0, 2)),
        (1, Cutback(None, 5.0, 2), Cutback(1, NOW_S + 3600.0, 3)),
    ],
)
def test_a_job_with_too_few_nodes_rests_for_longer_each_time(left: int, known: Cutback | None, cap: Cutback) -> None:
    assert idle_cap(planned(an_allocator(idle_cap=known)), left, NOW_S) == cap
    assert idle_cap(an_allocator(), 0, NOW_S) == Cutback(0, math.inf, 0)


def test_a_cap_on_idle_nodes_ends_with_its_time_or_when_more_may_be_useful() -> None:
    market = a_market(an_option())
    before = planned(an_allocator(a_pool(SOUND), idle_cap=Cutback(1, NOW_S, 0), market=market))
    assert forget_idle_cap(before, before, NOW_S - 0.1).idle_cap == Cutback(1, NOW_S, 0)
    over = forget_idle_cap(before, before, NOW_S)
    assert over.idle_cap == Cutback(None, NOW_S, 0)
    assert forget_idle_cap(over, over, NOW_S).idle_cap == over.idle_cap
    enough = replace(over, pools={REF: a_pool(SOUND, SOUND)})
    assert forget_idle_cap(enough, enough, NOW_S).idle_cap is None
    for changes in (
        {"wanted": 2},
        {"market": None},
        {"market": a_market(an_option(usd=5.0))},
        {"availability": {A.kind: Availability(cooldown_until_s=NOW_S)}},
    ):
        assert forget_idle_cap(before, replace(before, **changes), NOW_S - 1).idle_cap is None
    dearer = a_market(an_option(usd=0.505))
    assert forget_idle_cap(before, replace(before, market=dearer), NOW_S - 1).idle_cap is not None
    assert forget_idle_cap(before, planned(before, min_workers=1), NOW_S - 1).idle_cap is None


def test_a_cutback_ends_with_its_time_or_when_another_number_is_wanted() -> None:
    before = planned(an_allocator(a_pool(SOUND), cutback=Cutback(1, NOW_S, 2)))
    assert forget_cutback(before, before, NOW_S - 0.1).cutback == Cutback(1, NOW_S, 2)
    assert forget_cutback(before, before, NOW_S).cutback == Cutback(None, NOW_S, 2)
    for after in (
        replace(before, wanted=2),
        planned(before, min_workers=1),
        planned(before, max_workers=5),
        planned(before, min_utilisation=0.5),
    ):
        assert forget_cutback(before, after, NOW_S - 1).cutback is None


def test_dismissals_are_cancelled_only_if_too_few_would_be_left() -> None:
    pool = a_pool(SOUND, LEAVES, {**LEAVES, **LOST})
    allocator = planned(an_allocator(pool))
    after = cancel_dismissals(allocator).pools[REF]
    assert (after.nodes["n2"].dismissed, after.nodes["n3"].dismissed) == ("", "idle")
    enough = planned(an_allocator(a_pool(SOUND, SOUND, LEAVES)))
    assert cancel_dismissals(enough) is enough
    going = planned(an_allocator(replace(pool, operation=operation(Kind.REMOVE, 3, 2, nodes=frozenset({"n2"})))))
    assert cancel_dismissals(going).pools[REF].nodes["n2"].dismissed == "idle"
    plain = an_allocator(pool)
    assert cancel_dismissals(plain) is plain
    left = replace(allocator, released={US: frozenset({"n1", "n2", "n3"})})
    assert {ref: [node.name for node in nodes] for ref, nodes in dismissed_and_left(left).items()} == {REF: ["n2"]}
    assert dismissed_and_left(allocator) == {}


def test_offers_of_one_choice_are_taken_together_within_what_can_be_reached() -> None:
    twin = replace(A, cluster=ClusterName("us-2"))
    assert by_choice([A, B, twin]) == {A.kind: [A, twin], B.kind: [B]}
    option = an_option(limit=20)
    offer = replace(IOWA, max_nodes=8)

    def reach(**supply: Any) -> int:
        market = within_reach(a_market(option), {offer: Supply(**supply)})
        return market.options[offer.kind].limit

    assert (reach(), reach(room=3), reach(aside=1)) == (8, 3, 1)
    assert reach(held=2, reachable=False) == 2 and reach(held=9) == 9
    assert reach(held=2, coming=1, aside=1) == 4
    assert reach(held=7, coming=3, aside=1) == 7
    same = a_market(an_option(limit=8))
    assert within_reach(same, {offer: Supply()}) is same
    assert within_reach(same, {}).options[offer.kind].limit == 0


def test_the_current_capacity_is_what_is_held_coming_and_refused() -> None:
    twin = replace(A, cluster=ClusterName("us-2"))
    capacity = current_capacity_of(
        {
            A: Supply(held=1, coming=2),
            twin: Supply(held=1, coming=1),
            B: Supply(closed_until_s=NOW_S + 1, coming=3),
            C: Supply(busy_until_s=NOW_S),
        },
        NOW_S,
    )
    assert (capacity.held, capacity.in_flight) == ({A.kind: 2}, {A.kind: 3})
    assert capacity.stocked_out == {B.kind}


@pytest.mark.parametrize(
    ("after", "is_little"),
    [
        (a_market(an_option(usd=0.51)), True),
        (a_market(an_option(usd=0.49)), True),
        (a_market(an_option(usd=0.5101)), False),
        (a_market(an_option(usd=0.4899)), False),
        (a_market(an_option(limit=7)), False),
        (a_market(an_option(), an_option(OREGON)), False),
        (a_market(an_option(), quotas={gpus_of("us-central1"): 3}), False),
    ],
)
def test_a_price_may_change_by_a_fiftieth_without_a_new_plan(after: Market, is_little: bool) -> None:
    assert moved_by_a_little(a_market(an_option()), after) is is_little


def some_plans(**changes: Any) -> Plans:
    facts = a_running_stage(IOWA).allocator.plans.facts
    return replace(Plans(facts=facts, facts_s=100.0), **changes)


def test_a_plan_is_due_when_its_inputs_rest_or_have_changed_for_too_long() -> None:
    def due_s(**changes: Any) -> float | None:
        return plan_due_s(planned(an_allocator(plans=some_plans(**changes))))

    known = some_plans()
    a_plan = Plan(placement={}, ask={}, change=Change.KEEP, score=None, why="")
    assert due_s() == 100.0
    assert (due_s(not_before_s=150.0), due_s(not_before_s=50.0)) == (150.0, 100.0)
    assert due_s(asked_s=90.0) == 100.5
    assert due_s(asked_s=10.0, changing_since_s=100.0) == 100.5
    assert due_s(asked_s=10.0, changing_since_s=40.2) == 100.2
    assert due_s(asked_s=40.2, changing_since_s=10.0) == 100.2
    assert due_s(asked=known.facts, asked_s=90.0) == 120.0
    assert due_s(facts=None) is None
    assert due_s(plan=a_plan, basis=known.facts) is None
    assert due_s(plan=a_plan, basis=None) == 100.0


def test_the_workers_of_a_plan_are_those_that_it_keeps() -> None:
    choice = a_choice()
    plan = Plan(placement={choice: 3}, ask={choice: 4}, change=Change.KEEP, score=None, why="")
    assert target_workers(Plans(plan=plan)) == 3
    assert target_workers(Plans(plan=structs.replace(plan, ask={choice: 2}))) == 2
    assert target_workers(Plans()) is None


def test_new_inputs_are_noted_unless_only_prices_moved_a_little() -> None:
    plans = some_plans()
    assert plans.facts is not None
    assert note(plans, plans.facts, 200.0, 0.5) is plans
    assert note(Plans(), None, 200.0, 0.5) == Plans()
    gone = note(plans, None, 200.0, 0.5)
    assert (gone.facts, gone.facts_s) == (None, 200.0)
    option = plans.facts.market.options[a_choice(IOWA_A)]
    for factor, changes in ((1.01, False), (1.03, True)):
        price = round(option.micro_usd_per_hour * factor)
        moved = structs.replace(option, micro_usd_per_hour=price)
        market = structs.replace(plans.facts.market, options={option.choice: moved})
        noted = note(plans, replace(plans.facts, market=market), 200.0, 0.5)
        assert (noted.facts_s == 200.0) is changes
    narrower = replace(plans.facts, criteria=structs.replace(plans.facts.criteria, max_workers=3))
    assert note(plans, narrower, 200.0, 0.5).facts == narrower


def test_changes_that_follow_each_other_faster_than_they_settle_are_one_series() -> None:
    first = note(some_plans(changing_since_s=50.0), None, 200.0, 0.5)
    second = note(first, some_plans().facts, 200.4, 0.5)
    third = note(second, None, 200.9, 0.5)
    assert [each.changing_since_s for each in (first, second, third)] == [200.0, 200.0, 200.9]


def test_workers_are_placed_on_nodes_that_exist_or_come_and_no_more_than_are_wanted() -> None:
    here = a_pool(SOUND, SOUND, target=3)
    there = Pool(pool_ref(JOB, C), C, target=2, exists=True, nodes=some_nodes(SOUND, SOUND))
    assert placement_of(an_allocator(here, there, wanted=5)) == {US: 3, EU: 2}
    assert placement_of(an_allocator(here, there, wanted=4)) == {US: 2, EU: 2}
    assert placement_of(an_allocator(here, there, wanted=3)) == {US: 2, EU: 1}
    unused = an_allocator(here, there, wanted=3, released={US: frozenset({"n1"})})
    assert placement_of(unused) == {US: 1, EU: 2}
    assert placement_of(an_allocator(here, there, wanted=1)) == {US: 1, EU: 1}
    assert placement_of(an_allocator(here, there, wanted=5, ended="done")) == {}
    leaving = an_allocator(here, there, wanted=5, leaving={EU: frozenset({"n1", "n2"})})
    assert placement_of(leaving) == {US: 3, EU: 1}
    adopted = replace(here, adopted=True)
    assert placement_of(an_allocator(adopted, there, wanted=4)) == {US: 3, EU: 1}
    assert placement_of(an_allocator(replace(adopted, sighted_s=1.0), there, wanted=4)) == {US: 2, EU: 2}


def a_worker(name: str, phase: WorkerPhase, *, node: str = "", job: JobName = JOB, **changes: Any) -> WorkerObservation:
    status = WorkerStatus(WorkerId(name), US, job, 1, phase, node=node or name)
    return WorkerObservation(
        **{"worker": WorkerId(name), "job": job, "presence": Presence.ALIVE, "status": status, **changes}
    )


def test_a_node_is_free_if_none_of_its_workers_does_anything() -> None:
    nodes = tuple(NodeObservation(node=name, uid="", pool="p", job=JOB, ready=True) for name in ("n1", "n2"))
    nodes += (NodeObservation(node="n3", uid="", pool="p", job=JobName("other"), ready=True),)

    def free(*workers: WorkerObservation) -> tuple[str, ...]:
        return free_nodes(ClusterHeartbeat(US, "a1", 1, workers=workers, nodes=nodes), JOB)

    idle, busy = a_worker("n1", WorkerPhase.IDLE), a_worker("n2", WorkerPhase.READY)
    assert (free(), free(idle), free(busy), free(idle, busy)) == (("n1", "n2"), ("n1", "n2"), ("n1",), ("n1",))
    assert free(idle, a_worker("n2", WorkerPhase.WARMING)) == ()
    assert free(idle, a_worker("n2", WorkerPhase.READY, status=None)) == ()
    assert free(a_worker("n2", WorkerPhase.READY, presence=Presence.GONE)) == ("n1", "n2")
    assert free(a_worker("n2", WorkerPhase.READY, job=JobName("other"))) == ("n1", "n2")
