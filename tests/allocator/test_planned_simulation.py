"""Seeds of a planned job under faults and a moving market, and bugs planted on purpose that some seed must find."""

import pytest

from tests.allocator import planted
from tests.allocator.planned_simulation import simulate_planned
from tests.allocator.planted import Plant, first_to_find
from tests.allocator.simulation import run_seeds

SEEDS = 40
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
}


def test_caps_hold_and_in_the_end_there_is_what_a_plan_would_keep() -> None:
    faults, broken = run_seeds(simulate_planned, range(SEEDS))
    assert not broken, "\n".join(broken)
    assert faults.keys() >= OF_THE_MARKET


def test_the_same_seed_tells_the_same_story() -> None:
    assert simulate_planned(3).story == simulate_planned(3).story


@pytest.mark.parametrize(
    "plant",
    [
        planted.follow_a_remembered_plan,
        planted.leave_a_pool_at_its_old_target_after_a_loss,
        planted.check_the_cap_without_operations_under_way,
        planted.count_no_money_that_is_under_way,
        planted.give_up_slots_by_number,
    ],
)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_to_find(plant, simulate_planned, range(SEEDS), monkeypatch) is not None
