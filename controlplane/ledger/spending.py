"""What was spent, the cost of a step, and a forecast."""

from dataclasses import dataclass

from controlplane.catalog.money import MicroDollars
from controlplane.ledger.amounts import egress_money, node_money
from controlplane.ledger.charge import rate_now, spans
from controlplane.ledger.settle import sums
from controlplane.ledger.state import Ledger


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected cost, at the average cost of a step so far with all waste."""

    total: MicroDollars
    remaining: MicroDollars
    remaining_steps: int
    remaining_s: float | None
    """At the current rate of spending; None while no machine costs anything."""


def spent(ledger: Ledger) -> MicroDollars:
    """Cost of nodes and egress up to the last look at the machines."""
    nodes = sum(tally.cost for tally in sums(ledger).lines.values())
    return MicroDollars(node_money(nodes) + egress_spent(ledger))


def egress_spent(ledger: Ledger) -> MicroDollars:
    return egress_money(sum(sent.cost for sent in ledger.egress.values()))


def hourly(ledger: Ledger) -> MicroDollars:
    """Cost an hour of the current machines at the newest prices; without egress."""
    rates = (rate_now(ledger, span.machine).paid for _, span in spans(ledger) if not span.gone)
    return MicroDollars(sum(rate for rate in rates if rate is not None))


def per_steps(ledger: Ledger, steps: int = 1000) -> MicroDollars | None:
    """Cost of so many steps; None before the first step."""
    return MicroDollars(_ratio(spent(ledger) * steps, ledger.steps)) if ledger.steps else None


def forecast(ledger: Ledger, total_steps: int | None) -> Forecast | None:
    """None while the cost of a step or the number of steps is not known."""
    if total_steps is None or ledger.first_step is None or ledger.last_step is None:
        return None
    so_far, now = spent(ledger), hourly(ledger)
    left = max(0, total_steps - ledger.last_step - 1)
    remaining = _ratio(so_far * left, ledger.steps)
    remaining_s = remaining / now * 3600 if now else None
    return Forecast(MicroDollars(so_far + remaining), MicroDollars(remaining), left, remaining_s)


def _ratio(amount: int, parts: int) -> int:
    return (2 * amount + parts) // (2 * parts)
