"""Wandering prices and changing capacity: few operations, each for a reason."""

import random

from controlplane.allocator.effects import Change, CreatePool, RemoveNodes, ResizePool
from controlplane.clouds.outcomes import StockedOut
from controlplane.planning.market import Option
from tests.allocator.planned_stage import IOWA, IOWA_TOO, WEST, PlannedStage, a_planned_stage, a_running_stage, offer_in
from tests.allocator.stage import US, held_by, of
from tests.planning.builders import IOWA_A, IOWA_B, OREGON, a_small_profile, an_option

ZONES = (IOWA_A, IOWA_B, OREGON)
OFFERS = (IOWA, IOWA_TOO, WEST)
TICK_S = 600.0


def noisy_prices(noise: random.Random) -> list[Option]:
    """Prices within 4 % of 0.5; a zone has no machines now and then."""
    return [
        an_option(zone, usd=0.5 * (1 + noise.uniform(-0.04, 0.04)), limit=0 if noise.random() < 0.3 else 8)
        for zone in ZONES
    ]


def carry_out(stage: PlannedStage) -> int:
    """The number of operations until no more are requested."""
    operations = 0
    for _ in range(10):
        asked = [effect for effect in stage.settles() if isinstance(effect, Change)]
        operations += len(asked)
        for effect in asked:
            if isinstance(effect, RemoveNodes):
                stage.ends(effect)
        stage.gets(*asked)
        stage.lists()
        named = [name for names in stage.allocator.leaving.values() for name in sorted(names)]
        if named:
            removed = of(stage.releases(*named), RemoveNodes)
            operations += len(removed)
            for effect in removed:
                stage.ends(effect)
            stage.lists()
        elif not asked:
            return operations
    raise AssertionError("it never rests")


def test_a_noisy_market_causes_no_operation_at_all() -> None:
    noise = random.Random(7)
    stage = a_running_stage(*OFFERS, max_workers=6, profile=a_small_profile(gradient_bytes=0))
    here = held_by(stage)
    for _ in range(48):
        stage.now_s += TICK_S
        stage.sees_prices(*noisy_prices(noise))
        stage.sees()
        assert carry_out(stage) == 0, stage.allocator.why
    assert held_by(stage) == here


def test_losses_in_a_noisy_market_cost_few_operations_each() -> None:
    """One slot is removed and one node requested; now and then the plan corrects the zone."""
    noise = random.Random(11)
    stage = a_running_stage(*OFFERS, profile=a_small_profile(gradient_bytes=0))
    operations, losses = 0, 12
    for _ in range(losses):
        stage.now_s += TICK_S
        stage.sees_prices(*noisy_prices(noise))
        zone = sorted(held_by(stage))[0]
        name = sorted(node for ref in stage.machines for node in stage.machines[ref] if node.startswith(zone))[0]
        stage.takes(name)
        at_once = [effect for effect in stage.sees() if isinstance(effect, Change)]
        operations += len(at_once)
        for effect in at_once:
            if isinstance(effect, RemoveNodes):
                stage.ends(effect)
        stage.gets(*at_once)
        stage.lists()
        operations += carry_out(stage)
        for pool in stage.allocator.pools.values():
            stage.fills(pool.offer)
        stage.sees()
        assert sum(held_by(stage).values()) == 4
    assert operations <= 4 * losses


def test_a_lasting_fall_of_a_price_moves_the_job_once() -> None:
    stage = a_running_stage(*OFFERS)
    cheap = [an_option(zone, usd=0.2 if zone == OREGON else 0.5) for zone in ZONES]
    stage.sees_prices(*cheap)
    assert carry_out(stage) > 0
    assert held_by(stage) == {OREGON: 4}
    stage.sees_prices(*cheap)
    assert carry_out(stage) == 0


def test_what_runs_is_not_given_up_for_a_zone_that_had_nothing_lately() -> None:
    """A better accelerator is out of stock: the job trains on the other one, and does not stop for each retry."""
    fast = offer_in(IOWA_A, "A100-40")
    stage = a_planned_stage(IOWA, fast)
    stage.ticks()
    stage.lists()
    stage.sees_prices(an_option(), an_option(IOWA_A, "A100-40", 0.5))
    [create] = of(stage.plans(), CreatePool)
    assert create.plan.kind == fast.kind
    stage.does(create)
    [shed] = of(stage.ends(create, StockedOut("none")), ResizePool)
    stage.ends(shed)
    stage.gets(*stage.settles())
    assert held_by(stage) == {IOWA_A: 4}
    for _ in range(8):
        stage.now_s += 100.0
        stage.sees()
        stage.settles()
        stage.lists()
        assert stage.allocator.leaving == {}, stage.allocator.why
    stage.now_s += 100.0
    stage.settles()
    assert len(stage.allocator.leaving[US]) == 4
