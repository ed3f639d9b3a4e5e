"""The caps of each raise, which count everything that may come: in flight, in doubt, refilled."""

from dataclasses import replace
from typing import Any

from controlplane.allocator.availability import availability_of
from controlplane.allocator.caps import money_per_hour, most_for
from controlplane.allocator.effects import AllocatorEffect, CreatePool, ResizePool
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.quota_room import blocked_by_quota, may_come
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import Pool
from controlplane.catalog.money import MicroDollars
from controlplane.clouds.outcomes import QuotaExceeded, Unreachable
from messages.criteria import Objective
from tests.allocator.planned_stage import (
    IOWA,
    IOWA_TOO,
    WEST,
    PlannedStage,
    a_planned_stage,
    a_running_stage,
    offer_in,
    prices_of,
)
from tests.allocator.stage import JOB, A, B, a_full_stage, asked, held_by, of
from tests.planning.builders import IOWA_A, IOWA_B, OREGON, USD, a_small_profile, an_option, gpus_of, some_criteria

BOTH = (IOWA, IOWA_TOO)
NO_GRADIENTS = a_small_profile(gradient_bytes=0)
FASTEST: dict[str, Any] = {
    "min_workers": 1,
    "max_workers": 8,
    "objective": Objective.THROUGHPUT,
    "profile": NO_GRADIENTS,
}


def dollars(usd: float) -> MicroDollars:
    return MicroDollars(round(usd * USD))


def hourly(stage: PlannedStage) -> int:
    allocator = stage.allocator
    assert allocator.demand is not None
    assert allocator.market is not None
    return money_per_hour(allocator.demand, allocator.market, may_come(allocator))


def test_an_answer_that_was_lost_counts_as_money_until_a_listing_tells() -> None:
    stage = a_planned_stage(*BOTH, **FASTEST, max_micro_usd_per_hour=dollars(2.01))
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of(BOTH))
    [first, second] = of(stage.plans(), CreatePool)
    assert (first.plan.size, second.plan.size) == (2, 2)
    stage.ends(first)
    stage.ends(second, Unreachable("connection lost"))
    stage.ticks(1.0)
    assert most_for(stage.allocator, stage.pool(IOWA), 8) == 2
    assert hourly(stage) == dollars(2.0)
    assert not of(stage.settles(), ResizePool)


def test_prices_that_rise_while_machines_come_leave_room_for_fewer() -> None:
    stage = a_planned_stage(*BOTH, **FASTEST, max_micro_usd_per_hour=dollars(2.01))
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of(BOTH))
    [first, _] = of(stage.plans(), CreatePool)
    stage.sees_prices(*prices_of(BOTH, us_central1_a=0.6, us_central1_b=0.6))
    stage.gets(first)
    assert most_for(stage.allocator, stage.pool(IOWA), 8) == 2 == stage.pool(IOWA).target


def test_what_is_sent_between_zones_is_money_too() -> None:
    stage = a_running_stage(IOWA, WEST, min_workers=2, max_workers=2, profile=a_small_profile(gradient_bytes=10**9))
    stage.asks_for(some_criteria(min_workers=2, max_workers=3, max_micro_usd_per_hour=dollars(1.6)))
    [pool] = stage.allocator.pools.values()
    other = WEST if pool.offer == IOWA else IOWA
    assert most_for(stage.allocator, pool, 3) == 3
    assert most_for(stage.allocator, Pool(pool_ref(JOB, other), other), 1) == 0


def test_the_quota_of_a_region_holds_for_all_its_zones_together() -> None:
    stage = a_planned_stage(*BOTH, **FASTEST)
    stage.ticks()
    stage.lists()
    stage.sees_prices(*prices_of(BOTH), quotas={gpus_of("us-central1"): 5})
    [first, second] = of(stage.plans(), CreatePool)
    assert first.plan.size + second.plan.size == 5
    stage.gets(first)
    assert most_for(stage.allocator, stage.pool(IOWA), 8) == 5 - second.plan.size


def test_a_quota_that_shrinks_takes_nothing_and_gives_nothing() -> None:
    stage = a_running_stage(IOWA, **FASTEST)
    assert held_by(stage) == {IOWA_A: 8}
    stage.sees_prices(*prices_of((IOWA,)), quotas={gpus_of("us-central1"): 5})
    assert stage.words(stage.settles()) == []
    assert stage.allocator.leaving == {}
    stage.takes(f"{IOWA_A}-1")
    stage.sees()
    assert stage.words(stage.settles()) == []


def test_a_pool_that_has_more_than_is_offered_is_not_raised_to_what_it_has() -> None:
    stage = a_running_stage(IOWA, **FASTEST)
    assert most_for(stage.allocator, stage.pool(IOWA), IOWA.max_nodes + 1) == IOWA.max_nodes


def test_nothing_of_another_accelerator_is_raised_beside_what_may_come() -> None:
    fast = offer_in(IOWA_A, "A100-40")
    stage = a_running_stage(IOWA, fast, options=[an_option(), an_option(IOWA_A, "A100-40", 9.0)])
    assert most_for(stage.allocator, Pool(pool_ref(JOB, fast), fast), 4) == 0


def test_what_may_be_had_of_a_choice_is_shared_by_its_clusters() -> None:
    stage = a_running_stage(IOWA, options=[an_option(limit=3)], **FASTEST)
    assert held_by(stage) == {IOWA_A: 3}


def _one_was_noticed(*others: Offer) -> tuple[PlannedStage, list[AllocatorEffect]]:
    """A job uses the whole quota of its region, and a node gets a notice; the next node would be in the other zone."""
    offers, usd = (*BOTH, *others), {"us_central1_a": 0.6, "us_west1_a": 0.6}
    few = prices_of((IOWA, replace(IOWA_TOO, max_nodes=2)), **usd)
    stage = a_running_stage(*offers, options=few, profile=NO_GRADIENTS)
    stage.sees_prices(*prices_of(offers, **usd), quotas={gpus_of("us-central1"): 4})
    stage.settles()
    assert held_by(stage) == {IOWA_A: 2, IOWA_B: 2}
    return stage, stage.notices(f"{IOWA_A}-1", 25.0)


def test_a_noticed_machine_counts_against_the_quota_until_it_is_gone() -> None:
    stage, noticed = _one_was_noticed()
    assert stage.words(noticed) == []
    assert stage.words(stage.settles()) == []
    assert {kind.region for kind in blocked_by_quota(stage.allocator)} == {"us-central1"}
    assert "us-central1 " in stage.allocator.why
    stage.takes(f"{IOWA_A}-1")
    assert stage.words(stage.sees()) == [("remove", IOWA_A, f"{IOWA_A}-1"), ("resize", IOWA_B, "3")]


def test_a_noticed_machine_is_replaced_at_once_where_another_quota_has_room() -> None:
    _, noticed = _one_was_noticed(WEST)
    assert [(create.plan.kind.zone, create.plan.size) for create in of(noticed, CreatePool)] == [(OREGON, 1)]


def test_a_quota_that_is_refused_while_a_noticed_machine_is_there_is_asked_again_soon_after() -> None:
    stage = a_full_stage(A, B)
    [create] = of(stage.notices("us-a-1", 25.0), CreatePool)
    stage.ends(create, QuotaExceeded("GPUS"))
    stage.takes("us-a-1")
    stage.sees()
    assert (
        availability_of(stage.allocator, B.kind).closed_until_s == stage.now_s + 25.0 + AllocatorSettings().stockout_s
    )
    stage.ticks(26.0)
    stage.lists()
    again = [*stage.ticks(30.0), *stage.lists()]
    assert ("create", "us-b", "1") in asked(again)
    [create] = of(again, CreatePool)
    stage.ends(create, QuotaExceeded("GPUS"))
    assert availability_of(stage.allocator, B.kind).closed_until_s == stage.now_s + AllocatorSettings().quota_s
