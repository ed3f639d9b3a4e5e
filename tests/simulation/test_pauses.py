"""Bugs planted in how a job is paused, which seeds must find."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from controlplane.job.phases import forming, waiting
from controlplane.job.state import Job
from messages.records import Record
from tests.simulation.run import simulate
from tests.simulation.seeds import is_found
from tests.simulation.settings import Supply, setting_of
from tests.simulation.system import Outcome


def simulate_pauses(seed: int) -> Outcome:
    """Simulates a seed with a job that is paused."""
    return simulate(seed, replace(setting_of(seed), has_pauses=True, supply=Supply.STATIC))


def _keep_the_workers(patch: pytest.MonkeyPatch) -> None:
    """The pause keeps all workers, so the machines still cost money."""
    patch.setattr(Record, "rests", False)


def _make_a_world_all_the_same(patch: pytest.MonkeyPatch) -> None:
    honest = waiting.what_to_wait_for

    def careless(job: Job, now_s: float) -> str | None:
        return None if job.record.paused is not None else honest(job, now_s)

    patch.setattr(waiting, "what_to_wait_for", careless)
    patch.setattr(forming, "what_to_wait_for", careless)


@pytest.mark.parametrize(("plant", "likely"), [(_keep_the_workers, 1), (_make_a_world_all_the_same, 1)])
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], likely: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert is_found(simulate_pauses, likely=likely)
