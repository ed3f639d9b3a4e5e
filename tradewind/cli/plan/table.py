"""A plan as a table for people: the placement, then those that were not chosen."""

from rich.table import Table
from rich.text import Text

from controlplane.catalog.money import usd_text
from controlplane.planning.market import Nodes
from controlplane.planning.plan import Plan
from controlplane.planning.scoring import Score
from runtime.plain_text import plain
from tradewind.cli import tables

STEP_FIGURES = (">STEPS/S", ">USD/H", ">EGRESS/H", ">RISK/H", ">USD/1000 STEPS")


def plan_table(made: Plan, *, gpus_per_node: int) -> Table:
    """Steps, and what depends on them, only where they are known."""
    is_assumed = made.score is not None and made.score.is_assumed
    figures = (">USD/H", ">USD/GPU-H", ">RISK/H") if is_assumed else STEP_FIGURES

    def row(nodes: Nodes, score: Score) -> tuple[str | Text, ...]:
        return (*_nodes(nodes), *(_prices(score, gpus_per_node) if is_assumed else _steps(score)))

    rows: list[tuple[str | Text, ...]] = []
    if made.score is not None:
        rows.append(("best", *row(made.placement, made.score), _wanted(made)))
    rows += [
        (str(number), *row(other.nodes, other.score), other.why_not)
        for number, other in enumerate(made.alternatives, start=2)
    ]
    return tables.table(("", "NODES", "MACHINES", *figures, "WHY"), rows)


def _wanted(made: Plan) -> str:
    return made.why.partition(":")[0]


def _nodes(nodes: Nodes) -> tuple[Text, ...]:
    """Several kinds of machines stand below each other."""
    where = [f"{count} × {choice.accelerator} {choice.zone}" for choice, count in nodes.items()]
    what = [f"{choice.machine_type}{'' if choice.spot else ' on demand'}" for choice in nodes]
    return tuple(Text("\n".join(map(plain, lines))) for lines in (where, what))


def _steps(score: Score) -> tuple[str, ...]:
    estimate = score.estimate
    return (
        f"{estimate.steps_per_s:.3g}",
        usd_text(estimate.micro_usd_per_hour, 2),
        usd_text(estimate.egress_micro_usd_per_hour, 2),
        usd_text(round(score.risk_micro_usd_per_hour), 2),
        usd_text(estimate.micro_usd_per_1000_steps, 2),
    )


def _prices(score: Score, gpus_per_node: int) -> tuple[str, ...]:
    return (
        usd_text(score.estimate.machines_micro_usd_per_hour, 2),
        usd_text(round(score.machines_per_node / gpus_per_node), 2),
        usd_text(round(score.risk_micro_usd_per_hour), 2),
    )
