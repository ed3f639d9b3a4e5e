"""Bugs planted where job, allocator and cloud meet, which seeds with bought nodes must find."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from controlplane.allocator import decide as allocator_core
from controlplane.allocator import learn as allocator_learn
from controlplane.allocator.effects import Place
from controlplane.allocator.events import NodesWanted
from controlplane.allocator.placement import place_of, placement_of
from controlplane.allocator.state import Allocator
from controlplane.job import learn as job_learn
from controlplane.job.events import JobEvent, PlacementChanged
from controlplane.job.state import Job
from tests.simulation.run import simulate
from tests.simulation.seeds import is_found
from tests.simulation.settings import Supply, setting_of
from tests.simulation.system import Outcome


def simulate_bought(seed: int) -> Outcome:
    """Simulates a seed that buys its nodes by a plan and within a budget, or in the order of the fleet."""
    setting = setting_of(seed)
    supply = Supply.ORDERED if setting.supply is Supply.ORDERED else Supply.PLANNED
    has_budget = supply is Supply.PLANNED and (setting.has_budget or not setting.is_bought)
    bought = replace(setting, supply=supply, has_budget=has_budget, has_pauses=False, has_barren_cluster=False)
    return simulate(seed, bought)


def _obey_a_placement_that_a_want_overtook(patch: pytest.MonkeyPatch) -> None:
    """The job obeys a placement although it has requested another since."""
    honest = job_learn.learn

    def gullible(job: Job, event: JobEvent) -> Job:
        if isinstance(event, PlacementChanged) and job.supply.want is not None:
            event = replace(event, want=job.supply.want.number)
        return honest(job, event)

    patch.setattr(job_learn, "learn", gullible)


def _place_before_the_first_listing(patch: pytest.MonkeyPatch) -> None:
    """The allocator of a new term reports no nodes before its first listing."""

    def hasty(allocator: Allocator, now_s: float) -> Place:
        return replace(place_of(allocator, now_s), workers=placement_of(allocator))

    patch.setattr(allocator_core, "place_of", hasty)


def _keep_the_pools_of_an_ended_job(patch: pytest.MonkeyPatch) -> None:
    """The allocator does not learn that the job has ended."""
    honest = allocator_learn._learn_want

    def deaf(allocator: Allocator, event: NodesWanted) -> Allocator:
        return honest(allocator, replace(event, ended=None))

    patch.setattr(allocator_learn, "_learn_want", deaf)


@pytest.mark.parametrize(
    ("plant", "likely"),
    [
        (_obey_a_placement_that_a_want_overtook, 90),
        (_place_before_the_first_listing, 8),
        (_keep_the_pools_of_an_ended_job, 0),
    ],
)
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], likely: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert is_found(simulate_bought, likely=likely)
