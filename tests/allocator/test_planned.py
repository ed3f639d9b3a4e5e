"""Stories of a planned job: plans that are followed, stopgaps, and texts for people."""

from dataclasses import replace

import pytest

from controlplane.allocator import events
from controlplane.allocator.decide import decide
from controlplane.allocator.effects import CreatePool, MakePlan, RemoveNodes, ResizePool
from controlplane.allocator.explanations import (
    NO_PRICES,
    explain_idleness,
    more_nodes,
    nodes_text,
    shortage,
    until_plan,
)
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.targets import MEASURING, RESTS
from controlplane.catalog.money import MicroDollars
from controlplane.clouds.outcomes import QuotaExceeded, StockedOut
from controlplane.planning.explanations import no_room
from controlplane.planning.plan import plan
from messages.criteria import Objective
from tests.allocator.planned_stage import (
    FAR,
    IOWA,
    IOWA_TOO,
    WEST,
    a_planned_stage,
    a_running_stage,
    offer_in,
    prices_of,
    said,
)
from tests.allocator.stage import EU, US, asked, held_by, of
from tests.planning.builders import (
    ALL_GPUS,
    HOLLAND,
    IOWA_A,
    IOWA_B,
    OREGON,
    a_choice,
    a_small_profile,
    an_option,
    some_criteria,
)

HOLLAND_TOO = "europe-west4-b"
EVERYWHERE = (IOWA, IOWA_TOO, WEST)
LARGE_GRADIENTS = a_small_profile(gradient_bytes=10**9)
NO_GRADIENTS = a_small_profile(gradient_bytes=0)
"""Zones of one price share the workers."""

# From the market to the first nodes


def test_nothing_is_asked_for_before_prices_are_known() -> None:
    stage = a_planned_stage()
    stage.ticks()
    assert asked(stage.lists()) == []
    assert stage.allocator.why == f"{nodes_text(0, 4)}; {NO_PRICES}"
    assert shortage(stage.allocator, stage.now_s) == NO_PRICES


def test_a_plan_that_a_quota_makes_smaller_names_the_quota() -> None:
    stage = a_planned_stage(min_workers=1, max_workers=4, objective=Objective.THROUGHPUT)
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of(EVERYWHERE), quotas={ALL_GPUS: 1})
    made = stage.plans()
    assert sum(create.plan.size for create in of(made, CreatePool)) == 1
    full = no_room([ALL_GPUS])
    assert [full in each.why for each in said(made, "planned")] == [True]
    assert shortage(stage.allocator, stage.now_s) == full


def test_what_a_master_finds_is_kept_before_prices_are_known() -> None:
    before = a_running_stage()
    after = a_planned_stage()
    after.cloud, after.machines = before.cloud, before.machines
    after.ticks()
    after.lists()
    assert after.words(after.sees()) == []
    assert held_by(after) == held_by(before)


def test_the_first_prices_are_planned_with_at_once_and_the_plan_is_followed() -> None:
    stage = a_planned_stage()
    stage.ticks()
    stage.lists()
    [ask] = of(stage.sees_prices(*prices_of(EVERYWHERE, us_west1_a=0.2)), MakePlan)
    assert (ask.number, ask.current.committed()) == (1, {})
    made = stage.plans()
    assert stage.words(made) == [("create", OREGON, "4")]
    [create] = of(made, CreatePool)
    followed = stage.allocator.plans.plan
    assert followed is not None
    assert create.why == f"{more_nodes(0, 4, 4, OREGON)}: plan 1 (begin): {followed.why}"


@pytest.mark.parametrize("tells", [True, False], ids=["it tells", "it never does"])
def test_the_first_plan_of_a_job_that_trains_waits_for_measured_steps_but_not_for_ever(tells: bool) -> None:
    stage = a_planned_stage(measured_by_s=110.0)
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of(EVERYWHERE))
    decided = decide(stage.allocator, events.Ticked(101.0))
    assert decided.why == f"{nodes_text(0, 4)}; {MEASURING}"
    assert decided.wake_at_s is not None and decided.wake_at_s <= 110.0
    assert of(stage.ticks(9.0), MakePlan) == []
    if tells:
        [ask] = of(stage.happens(events.ProfileMeasured(stage.now_s, NO_GRADIENTS)), MakePlan)
        assert ask.profile == NO_GRADIENTS
    else:
        [ask] = of(stage.ticks(1.0), MakePlan)
    assert stage.words(stage.plans())


def test_what_is_lost_while_measured_steps_are_waited_for_is_replaced() -> None:
    stage = a_running_stage(IOWA, IOWA_TOO, profile=NO_GRADIENTS)
    found = a_planned_stage(IOWA, IOWA_TOO, profile=NO_GRADIENTS, measured_by_s=1000.0)
    found.cloud, found.machines = stage.cloud, stage.machines
    found.ticks()
    found.lists()
    found.sees()
    found.sees_prices(*prices_of((IOWA, IOWA_TOO)))
    assert held_by(found) == {IOWA_A: 2, IOWA_B: 2}
    found.takes(f"{IOWA_A}-1")
    found.sees()
    assert found.allocator.why == f"{nodes_text(3, 4, coming=1)}; {MEASURING}"


def test_a_plan_of_another_world_is_not_followed_and_another_is_asked_for() -> None:
    stage = a_planned_stage()
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of(EVERYWHERE, us_west1_a=0.2))
    assert of(stage.sees_prices(*prices_of(EVERYWHERE, us_central1_a=0.2)), MakePlan) == []
    assert stage.words(stage.plans()) == []
    assert of(stage.ticks(0.4), MakePlan) == []
    [again] = of(stage.ticks(0.1), MakePlan)
    assert again.number == 2
    assert stage.words(stage.plans()) == [("create", IOWA_A, "4")]


def test_a_plan_is_followed_though_prices_moved_by_a_little_while_it_was_made() -> None:
    """Each of many jobs waits for the plans of the others; constantly changing prices would outdate all plans."""
    stage = a_planned_stage()
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of(EVERYWHERE, us_west1_a=0.2))
    for usd in (0.201, 0.203, 0.198):
        stage.now_s += 5.0
        stage.sees_prices(*prices_of(EVERYWHERE, us_west1_a=usd))
    assert stage.words(stage.plans()) == [("create", OREGON, "4")]


def test_prices_that_creep_make_another_plan_in_the_end() -> None:
    stage = a_running_stage()
    asked_for = len(of(stage.effects, MakePlan))
    for step in range(1, 6):
        stage.sees_prices(*prices_of(EVERYWHERE, us_west1_a=0.5 * (1 + step / 200)))
        stage.ticks(1.0)
    assert len(of(stage.effects, MakePlan)) == asked_for + 1


def test_however_little_a_price_moves_the_cap_on_money_is_kept() -> None:
    cap = MicroDollars(2_001_000)
    stage = a_running_stage(IOWA, min_workers=2, objective=Objective.THROUGHPUT, max_micro_usd_per_hour=cap)
    assert held_by(stage) == {IOWA_A: 4}
    stage.sees_prices(*prices_of((IOWA,), us_central1_a=0.501))
    stage.settles()
    assert len(stage.allocator.leaving[US]) == 1


def test_a_plan_of_other_criteria_is_not_followed() -> None:
    stage = a_planned_stage()
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of(EVERYWHERE))
    other = some_criteria(min_workers=2, max_workers=2)
    stage.asks_for(other)
    assert stage.words(stage.plans()) == []
    assert [size for _, _, size in stage.words(stage.settles())] == ["2"]


def test_a_plan_that_is_never_made_is_asked_for_again() -> None:
    stage = a_planned_stage()
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of(EVERYWHERE))
    assert of(stage.ticks(29.0), MakePlan) == []
    [again] = of(stage.ticks(1.0), MakePlan)
    late = plan(again.criteria, again.profile, again.market, again.current)
    assert stage.words(stage.happens(events.Planned(stage.now_s, again.number - 1, late))) == []
    assert stage.allocator.plans.plan is None


def test_a_world_that_never_rests_is_planned_for_once_a_minute() -> None:
    stage = a_running_stage()
    stage.ticks(60.0)
    asks = 0
    for tick in range(500):
        stage.now_s += 0.3
        found = stage.sees_prices(*prices_of(EVERYWHERE, us_west1_a=0.6 + tick % 2 / 10))
        asks += len(of(found, MakePlan))
        if of(found, MakePlan):
            stage.plans()
    assert asks == 2


def test_a_job_that_rests_is_not_planned_for_again_since_the_answer_would_be_the_same() -> None:
    stage = a_running_stage()
    for _ in range(10):
        assert of(stage.ticks(20.0), MakePlan) == []
        stage.lists()


# Losses


def test_a_loss_is_answered_in_the_same_decision_and_planned_for_after() -> None:
    stage = a_running_stage(options=prices_of(EVERYWHERE, us_west1_a=0.9), profile=NO_GRADIENTS)
    assert held_by(stage) == {IOWA_A: 2, IOWA_B: 2}
    stage.takes(f"{IOWA_A}-2")
    lost = stage.sees()
    assert of(lost, MakePlan) == []
    assert stage.words(lost) == [("remove", IOWA_A, f"{IOWA_A}-2"), ("resize", IOWA_B, "3")]
    assert of(lost, ResizePool)[0].why == f"{more_nodes(3, 4, 1, IOWA_B)}: {until_plan(4)}"
    assert len(of(stage.ticks(0.5), MakePlan)) == 1


def test_the_loss_of_all_is_answered_in_the_same_decision_too() -> None:
    stage = a_running_stage(IOWA, IOWA_TOO, min_workers=1, max_workers=1, profile=NO_GRADIENTS)
    stage.takes(f"{IOWA_A}-1")
    assert stage.words(stage.sees()) == [("remove", IOWA_A, f"{IOWA_A}-1"), ("create", IOWA_B, "1")]


def test_the_loss_of_the_only_region_in_use_is_answered_in_the_same_decision_with_the_same_accelerator() -> None:
    cheap, far_too = offer_in(HOLLAND, "T4", cluster=EU), offer_in(HOLLAND_TOO, cluster=EU)
    offers = (IOWA, replace(FAR, max_nodes=3), far_too, cheap)
    stage = a_running_stage(*offers, options=prices_of((IOWA,)))
    stage.sees_prices(*prices_of(offers, us_central1_a=0.2, europe_west4_b=0.6))
    stage.settles()
    assert held_by(stage) == {IOWA_A: 4}
    lost = stage.loses_cluster(US)
    assert [(each.plan.kind.zone, each.plan.size, each.plan.kind.accelerator) for each in of(lost, CreatePool)] == [
        (HOLLAND, 3, "L4"),
        (HOLLAND_TOO, 1, "L4"),
    ]


def test_a_loss_is_left_to_the_cloud_where_another_zone_would_be_left_again() -> None:
    """Large gradients: egress costs more than all machines."""
    stage = a_running_stage(profile=LARGE_GRADIENTS)
    assert held_by(stage) == {IOWA_A: 4}
    stage.takes(f"{IOWA_A}-2")
    assert stage.words(stage.sees()) == []
    assert stage.words(stage.settles()) == []
    stage.fills(IOWA)
    stage.sees()
    assert held_by(stage) == {IOWA_A: 4}


@pytest.mark.parametrize("since_the_last_plan_s", [0.0, 120.0])
def test_a_wave_is_one_plan_however_long_ago_the_last_plan_was(since_the_last_plan_s: float) -> None:
    stage = a_running_stage(min_workers=8, max_workers=8, profile=NO_GRADIENTS)
    assert sorted(held_by(stage).values()) == [4, 4]
    stage.now_s += since_the_last_plan_s
    asks = []
    for zone, nodes in list(held_by(stage).items()):
        for number in range(1, nodes):
            stage.now_s += 0.1
            asks += of(stage.loses(f"{zone}-{number}"), MakePlan)
    assert asks == []
    [ask] = of(stage.ticks(0.5), MakePlan)
    assert sum(ask.current.held.values()) == 2
    assert of(stage.ticks(0.5), MakePlan) == []


def test_a_pool_does_not_stay_at_its_old_target_after_a_loss() -> None:
    stage = a_running_stage(profile=NO_GRADIENTS)
    zone = next(iter(held_by(stage)))
    stage.takes(f"{zone}-1")
    [abandoned] = of(stage.sees(), RemoveNodes)
    assert abandoned.nodes == (f"{zone}-1",)


# Shortages


def test_a_stockout_closes_its_zone_only_and_the_next_is_tried_at_once() -> None:
    """The nearer zone has an operation in progress."""
    stage = a_running_stage(options=prices_of(EVERYWHERE, us_west1_a=0.6), profile=NO_GRADIENTS)
    stage.asks_for(some_criteria(min_workers=6, max_workers=6))
    grown = stage.settles()
    raised = of(grown, ResizePool)
    assert {each.size for each in raised} == {3}
    stage.does(raised[0])
    ended = stage.ends(raised[0], StockedOut("GCE_STOCKOUT"))
    assert stage.words(ended) == [("resize", IOWA_A, "2"), ("create", OREGON, "1")]
    stage.ends(raised[1])
    stage.fills(IOWA_TOO)
    stage.sees()
    assert [each.current.stocked_out for each in of(stage.ticks(0.5), MakePlan)] == [frozenset({a_choice(IOWA_A)})]


def test_where_nothing_is_held_yet_a_stockout_is_planned_around() -> None:
    stage = a_planned_stage()
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of(EVERYWHERE, us_west1_a=0.2))
    [create] = of(stage.plans(), CreatePool)
    stage.does(create)
    [shed] = of(stage.ends(create, StockedOut("none")), ResizePool)
    assert shed.size == 0
    stage.ends(shed)
    assert {zone for _, zone, _ in stage.words(stage.settles())} <= {IOWA_A, IOWA_B}


def test_a_quota_that_said_no_is_left_alone_for_long_and_the_next_zone_is_tried() -> None:
    stage = a_planned_stage()
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of(EVERYWHERE, us_west1_a=0.2))
    [create] = of(stage.plans(), CreatePool)
    stage.ends(create, QuotaExceeded("GPUS"))
    stage.lists()
    assert OREGON not in {zone for _, zone, _ in stage.words(stage.settles())}
    assert stage.allocator.availability[WEST.kind].closed_until_s == 100.0 + stage.allocator.settings.quota_s


def test_a_cluster_that_is_lost_is_planned_around() -> None:
    stage = a_running_stage(FAR, IOWA, options=prices_of((FAR, IOWA), europe_west4_a=0.1))
    assert held_by(stage) == {HOLLAND: 4}
    lost = stage.loses_cluster(EU)
    assert ("create", IOWA_A, "4") in stage.words([*lost, *stage.settles()])


# Several clusters


def test_a_choice_of_two_clusters_is_split_by_the_fleets_order_and_what_is_held_stays_where_it_is() -> None:
    first, second = offer_in(IOWA_A, at_most=3), offer_in(IOWA_A, at_most=8, cluster=EU)
    stage = a_running_stage(first, second, options=[an_option(IOWA_A, limit=11)])
    assert {ref.cluster: pool.target for ref, pool in stage.allocator.pools.items()} == {US: 3, EU: 1}
    more = some_criteria(min_workers=6, max_workers=6)
    stage.asks_for(more)
    assert [each.size for each in of(stage.settles(), ResizePool)] == [3]
    assert {ref.cluster: pool.target for ref, pool in stage.allocator.pools.items() if not pool.operation} == {US: 3}


# Giving up


def test_a_pause_gives_every_node_up_as_the_job_releases_it() -> None:
    stage = a_running_stage(IOWA)
    assert asked(stage.wants(0)) == []
    names = {f"{IOWA_A}-{number}" for number in range(1, 5)}
    assert stage.allocator.leaving == {US: names}
    released = stage.releases(*sorted(names))
    assert stage.words(released) == [("remove", IOWA_A, *sorted(names))]
    stage.ends(of(released, RemoveNodes)[0])
    stage.lists()
    assert stage.words(stage.settles()) == []
    assert stage.allocator.leaving == {}
    assert of(stage.wants(8), MakePlan) == []
    assert stage.words(stage.settles()) == [("resize", IOWA_A, "4")]


def test_fewer_than_the_job_needs_are_none() -> None:
    stage = a_running_stage(IOWA)
    stage.wants(3)
    assert len(stage.allocator.leaving[US]) == 4


def test_what_is_wanted_is_the_most_of_a_planned_job() -> None:
    stage = a_running_stage(IOWA, min_workers=2, max_workers=8, objective=Objective.THROUGHPUT)
    assert held_by(stage) == {IOWA_A: 8}
    stage.wants(3)
    stage.settles()
    assert len(stage.allocator.leaving[US]) == 5


def test_machines_that_are_no_longer_allowed_are_left_and_nothing_comes_beside_them() -> None:
    dear = offer_in(IOWA_A, spot=False)
    options = [an_option(), an_option(usd=1.5, spot=False)]
    stage = a_running_stage(IOWA, dear, options=options, on_demand=0.5)
    assert {pool.offer.spot: pool.target for pool in stage.allocator.pools.values()} == {True: 2, False: 2}
    stage.asks_for(some_criteria(min_workers=4, max_workers=4))
    stage.sees_prices(an_option())
    assert stage.words(stage.settles()) == []
    [names] = stage.allocator.leaving.values()
    pool = next(pool for pool in stage.allocator.pools.values() if not pool.offer.spot)
    assert names == pool.nodes.keys()
    [remove] = of(stage.releases(*names), RemoveNodes)
    assert stage.words(stage.ends(remove)) == []
    stage.lists()
    assert stage.words(stage.settles()) == [("resize", IOWA_A, "4")]


def test_another_accelerator_comes_when_the_old_machines_are_gone() -> None:
    fast = offer_in(IOWA_A, "A100-40")
    stage = a_running_stage(IOWA, fast, options=[an_option(), an_option(IOWA_A, "A100-40", 9.0)])
    assert {pool.offer for pool in stage.allocator.pools.values()} == {IOWA}
    stage.sees_prices(an_option(usd=9.0), an_option(IOWA_A, "A100-40", 0.5))
    assert stage.words(stage.settles()) == []
    [leaving] = stage.allocator.leaving.values()
    assert len(leaving) == 4
    first, *others = sorted(leaving)
    [remove] = of(stage.releases(first), RemoveNodes)
    stage.ends(remove)
    stage.lists()
    assert stage.allocator.leaving == {US: frozenset(others)}
    assert stage.words(stage.settles()) == []
    assert stage.allocator.leaving == {US: frozenset(others)}
    [remove] = of(stage.releases(*others), RemoveNodes)
    stage.ends(remove)
    stage.lists()
    [create] = of(stage.settles(), CreatePool)
    assert create.plan.kind.accelerator == "A100-40"


# Idle nodes

BRIEF = AllocatorSettings(idle_timeout_s=60.0, relist_s=10_000.0)


def test_the_very_node_that_is_idle_goes_and_is_not_asked_for_again() -> None:
    stage = a_running_stage(IOWA, settings=BRIEF, min_workers=2, objective=Objective.THROUGHPUT)
    stage.releases(f"{IOWA_A}-3")
    assert stage.words(stage.ticks(59.0)) == []
    idle = stage.ticks(1.0)
    assert stage.words(idle) == [("remove", IOWA_A, f"{IOWA_A}-3")]
    assert of(idle, RemoveNodes)[0].why == explain_idleness(stage.allocator, [f"{IOWA_A}-3"])
    stage.ends(of(idle, RemoveNodes)[0])
    stage.lists()
    assert stage.words(stage.settles()) == []
    assert stage.words(stage.ticks(120.0)) == []
    assert held_by(stage) == {IOWA_A: 3}


def test_what_was_idle_is_asked_for_again_when_prices_change_or_a_node_is_lost() -> None:
    for cause in ("prices", "loss"):
        stage = a_running_stage(IOWA, settings=BRIEF, min_workers=2, objective=Objective.THROUGHPUT)
        stage.releases(f"{IOWA_A}-3")
        stage.ends(of(stage.ticks(60.0), RemoveNodes)[0])
        stage.lists()
        stage.sees()
        assert stage.words(stage.settles()) == []
        if cause == "prices":
            stage.sees_prices(*prices_of((IOWA,), us_central1_a=0.4))
        else:
            stage.takes(f"{IOWA_A}-1")
            stage.sees()
        assert stage.words(stage.settles()) == [("resize", IOWA_A, "4")]


def test_a_node_that_is_used_again_is_not_idle() -> None:
    stage = a_running_stage(IOWA, settings=BRIEF, min_workers=2, objective=Objective.THROUGHPUT)
    stage.releases(f"{IOWA_A}-3")
    stage.ticks(50.0)
    stage.releases()
    stage.releases(f"{IOWA_A}-3")
    assert stage.words(stage.ticks(50.0)) == []


def test_no_more_idle_nodes_go_than_the_job_can_run_without() -> None:
    stage = a_running_stage(IOWA, settings=BRIEF, min_workers=3, objective=Objective.THROUGHPUT)
    stage.releases(*(f"{IOWA_A}-{number}" for number in range(1, 5)))
    assert stage.words(stage.ticks(60.0)) == [("remove", IOWA_A, f"{IOWA_A}-1")]


def test_idle_nodes_that_are_too_few_to_run_with_go_and_all_are_asked_for_again_after_a_while() -> None:
    """Prices and criteria did not change; each pause is longer."""
    on_demand = offer_in(IOWA_A, spot=False)
    settings = replace(BRIEF, stockout_max_s=30.0, rest_max_s=200.0)
    stage = a_planned_stage(on_demand, settings=settings, on_demand=1.0)
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of((on_demand,)))
    raised = stage.settles()
    for rest_s in (60.0, 120.0, 200.0):
        [ask] = [each for each in raised if isinstance(each, CreatePool | ResizePool)]
        stage.does(ask)
        stage.machines[ask.ref] = {"n-1": f"u1-{rest_s}", "n-2": f"u2-{rest_s}"}
        stage.sees()
        [lower] = of(
            stage.happens(events.OperationEnded(stage.now_s, ask.ref, ask.operation, StockedOut("no"))), ResizePool
        )
        stage.ends(lower)
        stage.settles()
        stage.releases("n-1", "n-2")
        [given_back] = of(stage.ticks(60.0), RemoveNodes)
        stage.ends(given_back)
        stage.lists()
        stage.sees()
        assert stage.words(stage.ticks(rest_s - 1.0)) == []
        assert stage.allocator.why == f"{nodes_text(0, 4)}; {RESTS}"
        assert RESTS in shortage(stage.allocator, stage.now_s)
        stage.ticks(1.0)
        raised = stage.settles()
    stage.gets(*raised)
    assert held_by(stage) == {IOWA_A: 4}
    stage.ticks(1.0)
    assert stage.allocator.idle_cap is None


# Texts


def test_a_plan_is_told_once_with_its_figures_and_what_lost_by_how_much() -> None:
    stage = a_running_stage(options=prices_of(EVERYWHERE, us_west1_a=0.2))
    first, second = said(stage.effects, "planned")
    assert first.text.endswith(f" 4 × L4 in {OREGON} (begin)")
    assert second.text.endswith(f" 4 × L4 in {OREGON} (keep)")
    assert "$0.80 an hour" in first.why
    assert {key: first.fields[key] for key in ("change", "workers", "usd_per_hour")} == {
        "change": "begin",
        "workers": 4,
        "usd_per_hour": "0.8000",
    }
    assert str(first.fields["lost_1"]).endswith(" with risk")
    stage.sees_prices(*prices_of(EVERYWHERE, us_west1_a=0.21))
    assert said(stage.settles(), "planned") == []


def test_a_job_that_cannot_have_what_it_needs_says_why() -> None:
    small = replace(IOWA, max_nodes=3)
    stage = a_running_stage(small, options=prices_of((small,)))
    assert stage.words(stage.effects) == []
    [waiting] = [each for each in said(stage.effects, "planned") if each.fields["change"] == "wait"]
    assert stage.allocator.why.endswith(f"; plan 1 (wait): {waiting.why}")
    assert "4 workers" in waiting.why
    assert "3 of one" in waiting.why
