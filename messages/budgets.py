"""Budgets of jobs in the master's API: `GET` and `POST /v1/jobs/<job>/budget`, in millionths of a dollar."""

from msgspec import Struct

from messages.criteria import Usd, WhenSpent
from messages.ids import Counted, JobName


class BudgetRequest(Struct, frozen=True, forbid_unknown_fields=True):
    usd: Usd
    """The whole budget in dollars, including what is spent already."""


class BudgetView(Struct, frozen=True, kw_only=True):
    job: JobName
    micro_usd_total: Counted | None
    """The whole budget; None if unlimited."""
    when_spent: WhenSpent
    micro_usd: Counted
    """The amount spent so far."""
    assumed_micro_usd: Counted = 0
    """What may have been spent in addition, while the cloud does not list its machines."""
    reserve_micro_usd: Counted
    """Reserved for the time that it takes to give the machines back."""
    paused: str = ""
    """Why the job is paused; empty if it is not."""
    spot_only: str = ""
    """Why the job takes no more machines on demand; empty if it does."""
    note: str = ""
    """The most important remark for a reader."""
