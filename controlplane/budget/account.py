"""The amounts by which a budget is judged: what is spent, and the reserve for removing all machines.

Machines cost money until they are gone, also after the decision to remove them. The reserve pays for that time. It
covers all machines that the job may have, since some may be coming, at the on-demand price, the most that a spot price
can rise to.

While the cloud does not list its machines, the job may have had its maximum of them since the last listing. That amount
is assumed and not booked: a later listing shows when each machine started.
"""

from dataclasses import dataclass

from controlplane.catalog.money import MicroDollars
from controlplane.ledger.amounts import MS_PER_HOUR, node_money
from controlplane.ledger.charge import Span, rate_now, spans
from controlplane.ledger.spending import spent
from controlplane.ledger.state import Ledger, Rate

RELEASE_S = 120.0
"""Seconds from the decision until the last machine is gone: trainers end, workers leave, the cloud deletes."""
MS_PER_S = 1000
NOTHING = MicroDollars(0)


@dataclass(frozen=True, slots=True)
class Account:
    spent: MicroDollars
    """Until now; time since the last listing counts at the newest prices."""
    reserve: MicroDollars
    assumed: MicroDollars = NOTHING
    """What may have been spent in addition while no machines were listed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the job may have at the same time."""

    machines: int
    micro_usd_per_hour: MicroDollars | None = None
    """For all machines, at the prices when they are requested."""
    micro_usd_per_machine: MicroDollars | None = None
    """On-demand price of the most expensive machine that the job may get, if it is known."""


def account(ledger: Ledger, limits: Limits, at_ms: int, *, blind: bool = False) -> Account:
    """The job's account at a time. `blind`: the cloud does not list its machines now."""
    there = [span for _, span in spans(ledger) if not span.gone]
    unseen = sum((rate_now(ledger, span.machine).paid or 0) * _unseen_ms(span, at_ms) for span in there)
    going = sum(_ceiling(rate_now(ledger, span.machine)) for span in there)
    hourly = max(going, _hourly_at_most(ledger, limits))
    at_most = hourly * max(0, at_ms - ledger.looked_ms) if blind else 0
    assumed = node_money(max(0, at_most - unseen))
    return Account(MicroDollars(spent(ledger) + node_money(unseen)), _while_released(hourly), assumed)


def _unseen_ms(span: Span, at_ms: int) -> int:
    return max(0, at_ms - span.machine.seen_ms)


def _hourly_at_most(ledger: Ledger, limits: Limits) -> int:
    """The most that the job's machines may cost an hour: the highest price that one had or may have."""
    seen = [rate for points in ledger.prices.values() for _, rate in points]
    hourly = limits.machines * max((limits.micro_usd_per_machine or 0, *map(_ceiling, seen)))
    cap = limits.micro_usd_per_hour
    return hourly if cap is None else min(hourly, max((cap, *(_risen(cap, rate) for rate in seen))))


def _risen(cap: MicroDollars, rate: Rate) -> int:
    """The most that machines within the cap may cost later: the cap applies to the price at their request."""
    return -(-cap * _ceiling(rate) // rate.paid) if rate.paid else cap


def _ceiling(rate: Rate) -> int:
    return max(rate.paid or 0, rate.on_demand or 0)


def _while_released(hourly: int) -> MicroDollars:
    return MicroDollars(-(-hourly * int(RELEASE_S * MS_PER_S) // MS_PER_HOUR))
