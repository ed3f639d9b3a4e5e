"""A plan as a table for people: the placement, then those that were not chosen."""

from rich.table import Table

from controlplane.catalog.money import usd_text
from controlplane.planning.market import Nodes
from controlplane.planning.plan import Plan
from controlplane.planning.scoring import Score
from tradewind.cli import present

NOTHING = "–"


def plan_table(made: Plan, *, is_assumed: bool) -> Table:
    columns = ("", "NODES", "MACHINES", ">STEPS/S", ">USD/H", ">EGRESS/H", ">RISK/H", ">USD/1000 STEPS", "WHY")
    rows = []
    if made.score is not None:
        rows.append(("best", *_row(made.placement, made.score, is_assumed=is_assumed), _wanted(made)))
    rows += [
        (str(number), *_row(other.nodes, other.score, is_assumed=is_assumed), other.why_not)
        for number, other in enumerate(made.alternatives, start=2)
    ]
    return present.table(columns, rows)


def _wanted(made: Plan) -> str:
    return made.why.partition(":")[0]


def _row(nodes: Nodes, score: Score, *, is_assumed: bool) -> tuple[str, ...]:
    estimate = score.estimate
    return (
        "\n".join(f"{count} × {choice.accelerator} {choice.zone}" for choice, count in nodes.items()),
        "\n".join(f"{choice.machine_type}{'' if choice.spot else ' on demand'}" for choice in nodes),
        NOTHING if is_assumed else f"{estimate.steps_per_s:.3g}",
        usd_text(estimate.machines_micro_usd_per_hour + (0 if is_assumed else estimate.egress_micro_usd_per_hour), 2),
        NOTHING if is_assumed else usd_text(estimate.egress_micro_usd_per_hour, 2),
        usd_text(round(score.risk_micro_usd_per_hour), 2),
        NOTHING if is_assumed else usd_text(estimate.micro_usd_per_1000_steps, 2),
    )
