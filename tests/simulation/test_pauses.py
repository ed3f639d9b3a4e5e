"""A budget that runs out in the middle of changes, of both kinds of jobs, and planted bugs that seeds find."""

from collections import Counter
from collections.abc import Callable

import pytest

from controlplane.job import reconcile as job_reconcile
from controlplane.job import waiting as job_waiting
from controlplane.job.state import Job, Record
from tests.simulation.pauses import simulate_live_pauses, simulate_pauses
from tests.simulation.seeds import is_found
from tests.simulation.system import Outcome

SEEDS = 30

MOMENTS = {"paused", "paused while a world is formed", "paused while a world is parked"}
LIVE_MOMENTS = {*MOMENTS, "paused while a world is prepared", "paused when a repair was decided"}


@pytest.mark.parametrize(("simulate", "moments"), [(simulate_pauses, MOMENTS), (simulate_live_pauses, LIVE_MOMENTS)])
def test_a_pause_at_any_moment_leaves_nobody_behind_and_the_job_goes_on(
    simulate: Callable[[int], Outcome], moments: set[str], tell: Callable[[str], None]
) -> None:
    made: Counter[str] = Counter()
    broken = []
    for seed in range(SEEDS):
        outcome = simulate(seed)
        made += outcome.faults
        if outcome.broken is not None:
            broken.append(f"seed {seed}: {outcome.broken}")
    tell(f"{SEEDS} seeds: " + ", ".join(f"{made[moment]} × {moment}" for moment in sorted(moments)))
    assert not broken, "\n".join(broken)
    assert all(made[moment] for moment in moments)


def _keep_the_workers(patch: pytest.MonkeyPatch) -> None:
    """Nobody is let go: the machines would be paid for as before."""
    patch.setattr(Record, "rests", False)


def _make_a_world_all_the_same(patch: pytest.MonkeyPatch) -> None:
    honest = job_waiting.what_to_wait_for

    def careless(job: Job, now_s: float) -> str | None:
        return None if job.record.paused is not None else honest(job, now_s)

    patch.setattr(job_reconcile, "what_to_wait_for", careless)


@pytest.mark.parametrize(("plant", "likely"), [(_keep_the_workers, 1), (_make_a_world_all_the_same, 1)])
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], likely: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert is_found(simulate_live_pauses, likely=likely)
