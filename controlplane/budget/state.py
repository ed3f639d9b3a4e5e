"""What is known of one job's money."""

from dataclasses import dataclass

from controlplane.budget.terms import Terms
from controlplane.budget.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Budget:
    """Nothing of it is saved: the job's record says what was decided, and its ledger what was spent."""

    terms: Terms | None = None
    """None for a job that may spend what it likes."""
    verdict: Verdict | None = None
    """None before the job's ledger was read, and where it cannot be."""
    unreadable: str = ""
    """Why the job's ledger cannot be read."""
