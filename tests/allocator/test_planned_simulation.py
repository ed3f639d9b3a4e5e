"""Seeds of a planned job under faults and a moving market, and bugs planted on purpose that named seeds must find."""

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from controlplane.allocator import aims, caps, prospects
from controlplane.allocator.counting import expected, held
from controlplane.allocator.reconcile import Turn
from controlplane.allocator.state import Plans, Pool
from controlplane.clouds.interface import PoolRef
from controlplane.planning.plan import Plan
from tests.allocator.planned_simulation import simulate_planned

SEEDS = 40
OF_THE_MARKET = {"prices changed", "quota changed", "criteria changed", "node left idle", "plan late", "region lost"}


def test_caps_hold_and_in_the_end_there_is_what_a_plan_would_keep() -> None:
    faults: Counter[str] = Counter()
    broken = []
    for seed in range(SEEDS):
        result = simulate_planned(seed)
        faults += result.faults
        if result.broken is not None:
            broken.append(f"seed {seed}: {result.broken}")
    assert not broken, "\n".join(broken)
    assert faults.keys() >= OF_THE_MARKET


def test_the_same_seed_tells_the_same_story() -> None:
    assert simulate_planned(3).story == simulate_planned(3).story


def _follow_a_remembered_plan(patch: pytest.MonkeyPatch) -> None:
    """Whatever it was made from: after a shrink it asks for what was just given up."""

    def remembered(plans: Plans) -> Plan | None:
        return plans.plan

    patch.setattr(aims, "current", remembered)


def _leave_a_pool_at_its_old_target_after_a_loss(patch: pytest.MonkeyPatch) -> None:
    """Another pool is raised, but the cloud is never told to give up the slot that it will fill again."""
    honest = Turn._lower

    def forgetful(turn: Turn, pool: Pool, target: int) -> None:
        if not pool.vacant and not any(node.lost_s is not None for node in pool.nodes.values()):
            honest(turn, pool, target)

    def optimistic(pools: Iterable[Pool], *, but: PoolRef | None = None) -> int:
        return sum(expected(pool) for pool in pools if pool.ref != but)

    patch.setattr(Turn, "_lower", forgetful)
    patch.setattr(caps, "total", optimistic)
    patch.setattr(caps, "at_most", expected)


def _check_the_cap_before_operations_under_way(patch: pytest.MonkeyPatch) -> None:
    """Only what the cloud confirmed is counted, in workers, quotas and money."""

    def confirmed(pools: Iterable[Pool], *, but: PoolRef | None = None) -> int:
        return sum(pool.target for pool in pools if pool.ref != but)

    patch.setattr(caps, "total", confirmed)
    patch.setattr(caps, "at_most", lambda pool: pool.target)
    patch.setattr(prospects, "expected", lambda pool: pool.target)


def _count_no_money_that_is_under_way(patch: pytest.MonkeyPatch) -> None:
    """The number of workers is counted rightly, their money only once they are there."""
    patch.setattr(caps, "at_most", held)
    patch.setattr(prospects, "expected", held)


@pytest.mark.parametrize(
    "plant",
    [
        _follow_a_remembered_plan,
        _leave_a_pool_at_its_old_target_after_a_loss,
        _check_the_cap_before_operations_under_way,
        _count_no_money_that_is_under_way,
    ],
)
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the cloud's own account: the core's invariants, which may be wrong likewise, are not asked."""
    monkeypatch.setattr("tests.allocator.actor.check", lambda before, after, effects: [])
    plant(monkeypatch)
    found = next((seed for seed in range(SEEDS) if simulate_planned(seed).broken is not None), None)
    assert found is not None
