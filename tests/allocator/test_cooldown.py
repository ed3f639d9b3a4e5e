"""Zones in cooldown come last, the oldest preemption first; but no slot stays empty if there is room."""

import random

import pytest

from controlplane.allocator.cooldown import cooldown_zones_last
from controlplane.allocator.effects import AllocatorEffect, CreatePool, RemoveNodes, ResizePool
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.clouds.interface import QuotaKey
from controlplane.planning.market import CurrentCapacity, Market
from controlplane.planning.plan import Change, plan
from messages.criteria import Objective
from tests.allocator.planned_stage import (
    IOWA,
    IOWA_TOO,
    TUNING,
    WEST,
    PlannedStage,
    a_running_stage,
    offer_in,
    prices_of,
)
from tests.allocator.stage import held_by
from tests.planning.builders import (
    HOLLAND,
    IOWA_A,
    IOWA_B,
    OREGON,
    USD,
    a_choice,
    a_market,
    a_small_profile,
    an_option,
    gpus_of,
    some_criteria,
)

SMALL_GRADIENTS = a_small_profile(gradient_bytes=10_000)
A, B, C = a_choice(IOWA_A), a_choice(IOWA_B), a_choice(OREGON)


def carry_out(stage: PlannedStage, effects: list[AllocatorEffect]) -> None:
    for effect in effects:
        if isinstance(effect, RemoveNodes):
            stage.ends(effect)
    stage.gets(*effects)
    stage.lists()


def raised(stage: PlannedStage, effects: list[AllocatorEffect]) -> list[str]:
    """The zones in which more nodes are requested."""
    changes = [effect for effect in effects if isinstance(effect, CreatePool | ResizePool)]
    return [stage.allocator.pools[change.ref].offer.zone for change in changes]


@pytest.mark.parametrize("seed", range(5))
def test_with_two_zones_every_loss_is_answered_in_the_other_one_in_the_same_decision(seed: int) -> None:
    """Each zone preempted a machine a few seconds ago, and one may have none left."""
    chance = random.Random(seed)
    zones = {IOWA_A, OREGON}
    stage = a_running_stage(
        IOWA, WEST, min_workers=1, max_workers=3, objective=Objective.THROUGHPUT, profile=SMALL_GRADIENTS
    )
    for _ in range(12):
        stage.now_s += 3.0
        stage.sees()
        victim = chance.choice(sorted(name for nodes in stage.machines.values() for name in nodes))
        stage.takes(victim)
        lost = stage.sees()
        assert raised(stage, lost) == [*(zones - {victim.rpartition("-")[0]})]
        carry_out(stage, lost)
        assert stage.words(stage.settles()) == []
        assert sum(held_by(stage).values()) == 3


def test_where_the_others_are_full_a_zone_is_asked_again_though_it_took_all_its_machines() -> None:
    small = [offer_in(zone, at_most=2) for zone in (IOWA_A, OREGON)]
    stage = a_running_stage(
        *small, min_workers=1, max_workers=4, objective=Objective.THROUGHPUT, profile=SMALL_GRADIENTS
    )
    assert held_by(stage) == {IOWA_A: 2, OREGON: 2}
    stage.takes(f"{IOWA_A}-1", f"{IOWA_A}-2")
    assert stage.words(stage.sees()) == []
    assert stage.words(stage.settles()) == []
    assert stage.pool(small[0]).target == 2, "the cloud goes on filling what nobody else can give"


def test_a_zone_without_cooldown_comes_first_though_it_is_more_expensive() -> None:
    prices = prices_of((IOWA, IOWA_TOO, WEST), us_west1_a=0.6)
    stage = a_running_stage(options=prices, profile=a_small_profile(gradient_bytes=0))
    assert held_by(stage) == {IOWA_A: 2, IOWA_B: 2}
    for zone in (IOWA_A, IOWA_B):
        stage.takes(f"{zone}-1")
        lost = stage.sees()
        carry_out(stage, lost)
        stage.now_s += 3.0
    assert raised(stage, lost) == [OREGON]


# The market of the plan


def limits(market: Market) -> dict[MachineKind, int]:
    return {choice: option.limit for choice, option in market.options.items()}


def a_market_of_three(quotas: dict[QuotaKey, int] | None = None) -> Market:
    near = [an_option(zone, limit=4) for zone in (IOWA_A, IOWA_B)]
    return a_market(*near, an_option(OREGON, usd=2.0, limit=2), quotas=quotas)


def test_while_other_zones_have_room_for_all_those_in_cooldown_give_nothing() -> None:
    seen = cooldown_zones_last(
        some_criteria(max_workers=2), SMALL_GRADIENTS, a_market_of_three(), CurrentCapacity(), {A: 20.0, B: 10.0}
    )
    assert limits(seen) == {A: 0, B: 0, C: 2}


def test_what_fits_in_no_other_zone_comes_from_the_zone_with_the_oldest_preemption() -> None:
    for workers, expected in ((5, (0, 3)), (8, (2, 4))):
        seen = cooldown_zones_last(
            some_criteria(max_workers=workers),
            SMALL_GRADIENTS,
            a_market_of_three(),
            CurrentCapacity(),
            {A: 20.0, B: 10.0},
        )
        assert limits(seen) == {A: expected[0], B: expected[1], C: 2}


def test_money_and_quotas_that_limit_other_zones_leave_room_to_those_in_cooldown() -> None:
    cap = some_criteria(max_workers=5, max_micro_usd_per_hour=MicroDollars(3 * USD))
    assert limits(
        cooldown_zones_last(cap, SMALL_GRADIENTS, a_market_of_three(), CurrentCapacity(), {A: 20.0, B: 10.0})
    ) == {
        A: 0,
        B: 2,
        C: 2,
    }
    market = a_market_of_three({gpus_of("us-west1"): 1, gpus_of("us-central1"): 3})
    seen = cooldown_zones_last(
        some_criteria(max_workers=8), SMALL_GRADIENTS, market, CurrentCapacity(), {A: 20.0, B: 10.0}
    )
    assert limits(seen) == {A: 0, B: 3, C: 2}


def test_zones_in_cooldown_give_what_the_job_needs_if_others_are_too_expensive() -> None:
    cap = MicroDollars(3 * USD)
    market, taken = a_market_of_three(), {A: 20.0, B: 10.0}
    modest = some_criteria(min_workers=3, max_workers=5, max_micro_usd_per_hour=cap)
    silent = a_small_profile(gradient_bytes=0)
    assert limits(cooldown_zones_last(modest, silent, market, CurrentCapacity(), taken)) == {A: 0, B: 2, C: 2}
    needy = some_criteria(min_workers=4, max_workers=5, max_micro_usd_per_hour=cap)
    seen = cooldown_zones_last(needy, SMALL_GRADIENTS, market, CurrentCapacity(), taken)
    assert limits(seen) == {A: 4, B: 4, C: 2}
    assert plan(needy, SMALL_GRADIENTS, seen, CurrentCapacity(), TUNING).change is Change.BEGIN


def test_a_zone_in_cooldown_is_used_if_egress_of_the_others_is_too_expensive() -> None:
    """Two machines cost $0.80 an hour in other zones and in the zone in cooldown, but the others need egress."""
    market = a_market(an_option(usd=0.4, limit=2), *(an_option(zone, usd=0.4, limit=1) for zone in (OREGON, HOLLAND)))
    needy = some_criteria(min_workers=2, max_workers=2, max_micro_usd_per_hour=MicroDollars(USD))
    large = a_small_profile(gradient_bytes=10**9)
    seen = cooldown_zones_last(needy, large, market, CurrentCapacity(), {A: 20.0})
    assert seen == market
    assert plan(needy, large, seen, CurrentCapacity(), TUNING).placement == {A: 2}
    assert limits(cooldown_zones_last(needy, SMALL_GRADIENTS, market, CurrentCapacity(), {A: 20.0}))[A] == 0


def test_affordable_zones_without_cooldown_are_found_though_the_cheapest_are_far_apart() -> None:
    far = [an_option(zone, usd=0.3, limit=1) for zone in (IOWA_B, HOLLAND)]
    market = a_market(an_option(usd=0.4, limit=2), an_option(OREGON, usd=0.45, limit=2), *far)
    needy = some_criteria(min_workers=2, max_workers=2, max_micro_usd_per_hour=MicroDollars(USD))
    seen = cooldown_zones_last(needy, a_small_profile(gradient_bytes=10**9), market, CurrentCapacity(), {A: 20.0})
    assert limits(seen)[A] == 0
    assert plan(needy, a_small_profile(gradient_bytes=10**9), seen, CurrentCapacity(), TUNING).placement == {C: 2}


def test_a_zone_in_which_the_job_still_has_machines_is_left_to_the_plan() -> None:
    seen = cooldown_zones_last(
        some_criteria(max_workers=3),
        SMALL_GRADIENTS,
        a_market_of_three(),
        CurrentCapacity(held={A: 1}),
        {A: 20.0, B: 10.0},
    )
    assert limits(seen) == {A: 4, B: 0, C: 2}


def test_another_accelerator_is_no_room_for_what_runs_but_it_is_where_nothing_does() -> None:
    market = a_market(an_option(limit=4), an_option(IOWA_B, limit=4), an_option(OREGON, "A100-40", limit=4))
    lone = some_criteria(max_workers=4)
    assert (
        limits(cooldown_zones_last(lone, SMALL_GRADIENTS, market, CurrentCapacity(held={A: 1}), {A: 20.0, B: 10.0}))[B]
        == 3
    )
    assert limits(cooldown_zones_last(lone, SMALL_GRADIENTS, market, CurrentCapacity(), {A: 20.0, B: 10.0}))[B] == 0
