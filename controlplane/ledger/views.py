"""The view of a ledger for people."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from controlplane.catalog.kinds import MachineKind
from controlplane.ledger.amounts import MS_PER_HOUR, egress_money, node_money, node_money_by
from controlplane.ledger.charge import spans
from controlplane.ledger.settle import sums
from controlplane.ledger.spending import egress_spent, forecast, hourly, per_steps
from controlplane.ledger.state import Activity, Ledger, Line, Tally
from messages.costs import CostLine, CostView, EgressLine, ForecastView
from messages.jobs import JobSpec
from messages.workers import SampleCertificate

K = TypeVar("K")

MS_PER_S = 1000


def cost_view(ledger: Ledger, total_steps: int | None = None, note: str = "") -> CostView:
    found = sums(ledger)
    whole = sum(found.lines.values(), Tally())
    nodes, egress = node_money(whole.cost), egress_spent(ledger)
    by_hour = node_money_by(dict(sorted(found.hours.items())))
    return CostView(
        job=ledger.job,
        micro_usd=nodes + egress,
        nodes_micro_usd=nodes,
        egress_micro_usd=egress,
        micro_usd_per_hour=hourly(ledger),
        machines=sum(not span.gone for _, span in spans(ledger)),
        node_s=whole.node_ms / MS_PER_S,
        by_activity=_money_by(found.lines, lambda line: line.activity.value, (activity.value for activity in Activity)),
        by_region=_money_by(found.lines, lambda line: line.kind.region),
        by_accelerator=_money_by(found.lines, lambda line: line.kind.accelerator),
        on_demand_micro_usd=node_money(whole.on_demand_cost),
        steps=ledger.steps,
        samples=ledger.samples,
        micro_usd_per_1000_steps=per_steps(ledger),
        forecast=_forecast(ledger, total_steps),
        lines=_lines(found.lines),
        egress=tuple(
            EgressLine(*pair, sent.sent_bytes, egress_money(sent.cost)) for pair, sent in sorted(ledger.egress.items())
        ),
        by_hour=tuple((hour * MS_PER_HOUR / MS_PER_S, cost) for hour, cost in by_hour.items()),
        unpriced_node_s=whole.unpriced_ms / MS_PER_S,
        since=ledger.since_ms / MS_PER_S,
        until=ledger.newest_ms / MS_PER_S,
        note=note,
    )


def proven(ledger: Ledger, certificate: SampleCertificate | None) -> Ledger:
    """The ledger with the step count of the run's certificate, if there is one: it includes a lost last report.

    A run that resumed from an earlier job's checkpoint certifies steps that this job did not pay for: its reported
    count stays.
    """
    if certificate is None or not certificate.steps or ledger.first_step:
        return ledger
    return replace(ledger, first_step=0, last_step=certificate.steps - 1, samples=certificate.samples)


def planned_steps(spec: JobSpec) -> int | None:
    """The number of steps in the job's file; None if it has none."""
    deadline = spec.capacity.deadline if spec.capacity is not None else None
    if deadline is not None:
        return deadline.steps
    given = spec.hyperparameters.get("steps")
    return given if isinstance(given, int) and not isinstance(given, bool) and given > 0 else None


def _lines(lines: Mapping[Line, Tally]) -> tuple[CostLine, ...]:
    kinds: dict[MachineKind, Tally] = {}
    for line, tally in sorted(lines.items()):
        kinds[line.kind] = kinds.get(line.kind, Tally()) + tally
    money = node_money_by({kind: tally.cost for kind, tally in kinds.items()})
    return tuple(
        CostLine(
            region=kind.region,
            zone=kind.zone,
            machine_type=kind.machine_type,
            accelerator=kind.accelerator,
            spot=kind.spot,
            node_s=tally.node_ms / MS_PER_S,
            micro_usd=money[kind],
            working_micro_usd=node_money(lines.get(Line(kind, Activity.WORKING), Tally()).cost),
        )
        for kind, tally in kinds.items()
    )


def _money_by(lines: Mapping[Line, Tally], key: Callable[[Line], str], always: Iterable[str] = ()) -> dict[str, int]:
    costs = dict.fromkeys(always, 0)
    for line, tally in sorted(lines.items()):
        costs[key(line)] = costs.get(key(line), 0) + tally.cost
    return {name: int(amount) for name, amount in node_money_by(costs).items()}


def _forecast(ledger: Ledger, total_steps: int | None) -> ForecastView | None:
    found = forecast(ledger, total_steps)
    if found is None or total_steps is None:
        return None
    return ForecastView(total_steps, found.total, found.remaining, found.remaining_s, found.remaining_steps)
