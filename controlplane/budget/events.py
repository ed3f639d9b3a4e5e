"""The event of the budget core."""

from dataclasses import dataclass

from controlplane.catalog.money import MicroDollars
from controlplane.job.state import Job
from controlplane.ledger.state import Ledger


@dataclass(frozen=True, slots=True)
class SpendingSeen:
    """The job and its ledger, read each second."""

    at_s: float
    """On the monotonic clock."""
    at_ms: int
    """The same moment in Unix milliseconds, as ledgers count."""
    job: Job
    ledger: Ledger | None
    """None before the first read."""
    unreadable: str = ""
    """Why the ledger cannot be read; empty if it can."""
    blind: bool = False
    """The cloud does not list its machines now."""
    dearest: MicroDollars | None = None
    """On-demand price an hour of the most expensive machine that the job may get, if it is known."""
    longest_step_s: float = 0.0
    """The longest of the job's last steps."""
