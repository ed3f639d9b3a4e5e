"""What a budget is judged by."""

from dataclasses import dataclass

from controlplane.catalog.money import MicroDollars
from controlplane.job.state import Job
from controlplane.ledger.state import Ledger


@dataclass(frozen=True, slots=True)
class SpendingSeen:
    """The job and its ledger, looked at each second."""

    at_s: float
    """On the monotonic clock."""
    at_ms: int
    """The same moment in Unix milliseconds, as ledgers count."""
    job: Job
    ledger: Ledger | None
    """None before it was read."""
    unreadable: str = ""
    """Why it cannot be read."""
    blind: bool = False
    """Nobody can tell just now which machines there are."""
    dearest: MicroDollars | None = None
    """An hour of the dearest machine that the job may be given, on demand, where that is known."""
    longest_step_s: float = 0.0
    """Of its last steps."""
