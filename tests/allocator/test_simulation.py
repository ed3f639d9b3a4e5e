"""Seeds of the allocator under faults, and planted bugs that some seed must find."""

import pytest

from tests.allocator import planted
from tests.allocator.planted import Plant, is_caught
from tests.allocator.simulation import run_seeds, simulate

SEEDS = 150
QUICK = 50
"""The seeds of `make test`; the others are slow."""

EVERY_FAULT = {
    "message lost",
    "message duplicated",
    "message late (others overtake it)",
    "node preempted",
    "node noticed, then preempted",
    "several nodes preempted at once",
    "node came back under its name",
    "slot filled again unseen",
    "zone stocked out",
    "zone has machines again",
    "stockout inside an operation",
    "refused nodes given up early",
    "pool lowered beside an operation",
    "old refusal listed",
    "operation not waited for to its end",
    "quota inside an operation",
    "quota refused the call",
    "quota refused what it has no room for",
    "quota changed",
    "throttled",
    "request lost",
    "request late, and given up",
    "answer lost",
    "slow request",
    "listing failed",
    "listing late",
    "cluster cut off",
    "allocator crashed",
    "other number wanted",
    "pool deleted by a person",
    "shrink hit a running node",
    "region lost",
    "node hung",
    "node hung: it recovers",
    "node hung: it is repaired",
    "node hung: it stays so",
    "pool upgraded",
}


@pytest.mark.parametrize("seeds", [range(QUICK), pytest.param(range(QUICK, SEEDS), marks=pytest.mark.slow)], ids=str)
def test_caps_hold_under_faults_and_all_is_as_wanted_when_they_stop(
    seeds: range, capsys: pytest.CaptureFixture[str]
) -> None:
    faults, broken = run_seeds(simulate, seeds)
    with capsys.disabled():
        print(f"\n{len(seeds)} seeds; faults made: " + ", ".join(f"{n} × {kind}" for kind, n in faults.most_common()))
    assert not broken, "\n".join(broken)
    assert faults.keys() == EVERY_FAULT


def test_the_same_seed_tells_the_same_story() -> None:
    assert simulate(11).story == simulate(11).story


@pytest.mark.parametrize(
    ("plant", "complaint", "likely"),
    [
        (planted.leave_a_pool_at_its_old_target_after_a_loss, "are wanted", 1),
        (planted.forget_an_operation_whose_answer_was_lost, "are wanted", 10),
        (planted.check_the_cap_without_operations_under_way, "are wanted", 0),
        (planted.act_before_the_first_listing, "are wanted", 2),
        (planted.shrink_by_nodes_of_the_clouds_choice, "known nodes", 2),
        (planted.give_up_slots_by_number, "which the job uses, was let go", 3),
        (planted.trust_a_listing_that_is_too_old, "are wanted", 38),
        (planted.count_a_quota_for_each_pool_alone, "above the quota", 86),
    ],
)
def test_a_planted_bug_is_caught(plant: Plant, complaint: str, likely: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the seeds that pass without the bug finds it; the seed that found it before is tried first."""
    assert is_caught(plant, complaint, simulate, (likely, *range(SEEDS)), monkeypatch)
