"""300 seeds of the production cores under faults, and bugs planted on purpose that the same seeds must find."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from agents.worker import decide as worker_core
from agents.worker import learn as worker_learn
from agents.worker.events import AssignmentHeard, WorkerEvent
from agents.worker.state import WorkerState
from controlplane.job import asks as job_asks
from controlplane.job import learn as job_learn
from controlplane.job.state import Job
from messages.ids import Generation, WorkerId
from tests.simulation.system import simulate

SEEDS = 300

EVERY_FAULT = {
    "message lost",
    "message duplicated",
    "message late (others overtake it)",
    "worker killed",
    "worker noticed, then killed",
    "several workers killed at once",
    "master crashed",
    "controller crashed",
    "host killed",
    "script failed",
    "worker cut off",
    "master cut off",
    "controller cut off",
    "bus away",
    "store killed",
    "store did not start",
    "save failed",
    "save acknowledgement lost",
    "trainer ignored SIGTERM",
}


def test_the_world_is_safe_under_faults_and_heals_when_they_stop(tell: Callable[[str], None]) -> None:
    faults: Counter[str] = Counter()
    broken = []
    for seed in range(SEEDS):
        outcome = simulate(seed)
        faults += outcome.faults
        if outcome.broken is not None:
            broken.append(f"seed {seed}: {outcome.broken}")
    tell(f"{SEEDS} seeds; faults made: " + ", ".join(f"{n} × {kind}" for kind, n in faults.most_common()))
    assert not broken, "\n".join(broken)
    assert faults.keys() == EVERY_FAULT


def test_the_same_seed_tells_the_same_story() -> None:
    assert simulate(11).story == simulate(11).story


def _first_broken_seed() -> int | None:
    return next((seed for seed in range(SEEDS) if simulate(seed).broken is not None), None)


def _accept_a_stale_generation(patch: pytest.MonkeyPatch) -> None:
    """The worker-agent obeys whatever assignment it hears last."""
    honest = worker_learn.learn

    def gullible(state: WorkerState, event: WorkerEvent) -> WorkerState:
        if isinstance(event, AssignmentHeard):
            state = replace(state, fence=Generation(event.assignment.generation - 1), pending=None)
        return honest(state, event)

    patch.setattr(worker_core, "learn", gullible)


def _revive_the_dead(patch: pytest.MonkeyPatch) -> None:
    """A late word of a worker that is gone makes it a member again."""

    def no_tombstone(job: Job, worker: WorkerId) -> bool:
        return False

    patch.setattr(job_learn, "is_dead", no_tombstone)


def _forget_what_was_not_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """What was said once is taken for heard."""
    patch.setattr(job_asks, "is_due", lambda last_s, now_s: last_s is None)


@pytest.mark.parametrize("plant", [_accept_a_stale_generation, _revive_the_dead, _forget_what_was_not_acknowledged])
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert _first_broken_seed() is not None
