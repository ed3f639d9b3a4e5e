"""Everything a budget may ask for."""

from dataclasses import dataclass

from controlplane.job.events import BudgetFreed, BudgetReached


@dataclass(frozen=True, slots=True)
class TellJob:
    """The job learns it. If it gets lost, the next look tells it again."""

    event: BudgetReached | BudgetFreed


BudgetEffect = TellJob
