"""What a budget is judged by: what is spent by now, and what it would still cost to give everything back.

Whoever decides to give machines back goes on paying until they are gone. So much of a budget is kept from the start:
for all machines that the job may have, since some may be on their way, and at what they cost on demand, since a spot
price may rise while they go, but not above that.

While nobody can tell which machines there are, the job may have had all of those since they were last seen. That is
assumed, not booked: once they are seen again the cloud tells when each of them came.
"""

from dataclasses import dataclass

from controlplane.catalog.money import MicroDollars
from controlplane.ledger.amounts import MS_PER_HOUR, node_money
from controlplane.ledger.charge import Span, rate_now, spans
from controlplane.ledger.spending import spent
from controlplane.ledger.state import Ledger, Rate

RELEASE_S = 120.0
"""From the decision until the last machine is gone: trainers end, workers leave, the cloud deletes."""
MS_PER_S = 1000
NOTHING = MicroDollars(0)


@dataclass(frozen=True, slots=True)
class Account:
    spent: MicroDollars
    """By now; what nobody has looked at yet counts at the newest prices."""
    reserve: MicroDollars
    assumed: MicroDollars = NOTHING
    """What may have been spent on top, unseen."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the job may have at once."""

    machines: int
    micro_usd_per_hour: MicroDollars | None = None
    """Of all of them, when they are taken."""
    micro_usd_per_machine: MicroDollars | None = None
    """An hour of the dearest that it may be given, on demand, where that is known before it has had one."""


def account(ledger: Ledger, limits: Limits, at_ms: int, *, blind: bool = False) -> Account:
    """`blind`: nobody can tell which machines there are just now."""
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
    """At the dearest price that any of the job's machines has had, or may have."""
    seen = [rate for points in ledger.prices.values() for _, rate in points]
    hourly = limits.machines * max((limits.micro_usd_per_machine or 0, *map(_ceiling, seen)))
    cap = limits.micro_usd_per_hour
    return hourly if cap is None else min(hourly, max((cap, *(_risen(cap, rate) for rate in seen))))


def _risen(cap: MicroDollars, rate: Rate) -> int:
    """What machines that were taken for so much an hour may come to cost: the cap holds at the price of that moment."""
    return -(-cap * _ceiling(rate) // rate.paid) if rate.paid else cap


def _ceiling(rate: Rate) -> int:
    return max(rate.paid or 0, rate.on_demand or 0)


def _while_released(hourly: int) -> MicroDollars:
    return MicroDollars(-(-hourly * int(RELEASE_S * MS_PER_S) // MS_PER_HOUR))
