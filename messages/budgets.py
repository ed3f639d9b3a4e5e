"""A job's budget in the master's API: `GET` and `POST /v1/jobs/<job>/budget`. Money is in millionths of a dollar."""

from msgspec import Struct

from messages.criteria import Usd, WhenSpent
from messages.ids import Counted, JobName


class BudgetRequest(Struct, frozen=True, forbid_unknown_fields=True):
    usd: Usd
    """In all, with what is spent already."""


class BudgetView(Struct, frozen=True, kw_only=True):
    job: JobName
    micro_usd_total: Counted | None
    """None for a job that may spend what it likes."""
    when_spent: WhenSpent
    micro_usd: Counted
    """Spent by now."""
    assumed_micro_usd: Counted = 0
    """What may have been spent on top since the cloud last listed its machines, while it does not."""
    reserve_micro_usd: Counted
    """Kept to give the machines back."""
    paused: str = ""
    """Why, if it is."""
    spot_only: str = ""
    """Why it takes no machines on demand any more, if so."""
    note: str = ""
    """What a reader should know first."""
