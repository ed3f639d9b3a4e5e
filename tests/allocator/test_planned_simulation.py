"""Seeds of a planned job under faults and a moving market, and planted bugs that some seed must find."""

import pytest

from tests.allocator import planted
from tests.allocator.planned_simulation import simulate_planned
from tests.allocator.planted import Plant, is_caught
from tests.allocator.simulation import run_seeds

SEEDS = 40
QUICK = 14
"""The seeds of `make test`; the others are slow."""
OF_THE_MARKET = {
    "prices changed",
    "quota changed",
    "criteria changed",
    "profile measured",
    "node left idle",
    "node used too little",
    "plan late",
    "region lost",
    "slot filled again unseen",
    "too few left for long",
    "notice where the quota is full",
}


@pytest.mark.parametrize("seeds", [range(QUICK), pytest.param(range(QUICK, SEEDS), marks=pytest.mark.slow)], ids=str)
def test_caps_hold_and_in_the_end_there_is_what_a_plan_would_keep(seeds: range) -> None:
    faults, broken = run_seeds(simulate_planned, seeds)
    assert not broken, "\n".join(broken)
    assert faults.keys() >= OF_THE_MARKET


def test_the_same_seed_tells_the_same_story() -> None:
    assert simulate_planned(3).story == simulate_planned(3).story


@pytest.mark.parametrize(
    ("plant", "complaint", "likely"),
    [
        (planted.follow_a_remembered_plan, "by nobody's word", 0),
        (planted.rest_for_ever, "as wanted though nothing is told", 31),
        (planted.leave_a_pool_at_its_old_target_after_a_loss, "are the most", 9),
        (planted.check_the_cap_without_operations_under_way, "above the quota", 49),
        (planted.count_no_money_that_is_under_way, "micro-dollars", 24),
        (planted.forget_that_noticed_machines_have_their_quota, "would refuse", 1),
        (planted.give_up_slots_by_number, "which the job uses, was let go", 20),
    ],
)
def test_a_planted_bug_is_caught(plant: Plant, complaint: str, likely: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_caught(plant, complaint, simulate_planned, (likely, *range(SEEDS)), monkeypatch)
