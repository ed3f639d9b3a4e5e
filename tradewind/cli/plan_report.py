"""A plan as text and as JSON: the best placement and its alternatives."""

import click
from msgspec import Struct
from rich.table import Table
from rich.text import Text

from controlplane.planning.explanations import IDLE_GPUS, UNMEASURED, no_room
from controlplane.planning.market import Nodes
from controlplane.planning.plan import Plan
from controlplane.planning.scoring import Score
from controlplane.throughput.profile import Profile
from messages.criteria import Objective
from messages.jobs import JobSpec
from messages.measured import MeasuredProfile
from runtime.plain_text import plain
from tradewind.terminal import output, tables

STEP_FIGURES = (">STEPS/S", ">USD/H", ">EGRESS/H", ">RISK/H", ">USD/1000 STEPS")


def print_plan(
    made: Plan,
    spec: JobSpec,
    profile: Profile,
    measured: MeasuredProfile | None,
    prices: str,
    quotas_page: str,
    *,
    as_json: bool,
) -> None:
    is_assumed = profile.is_assumed
    if as_json:
        output.echo_json(plan_view(spec.name, made, is_assumed=is_assumed, measured=measured))
        return
    tables.console().print(plan_table(made, gpus_per_node=spec.workers.ranks))
    click.echo(f"\n{made.why}; {prices}." if not is_assumed else f"\n{prices}.")
    if measured is not None:
        click.echo(f"Measured while job {spec.name} trained: a step is {output.step_text(measured)}.")
    if is_assumed:
        by_price = spec.capacity is None or spec.capacity.objective is Objective.COST
        click.echo(
            "The job file has no `profile`, and no job of this name was measured. The plan compares machines by "
            f"{'the price of a GPU hour' if by_price else 'the peak figures of their makers'}, not by the speed of "
            "this model, and assumes a model of 350 million parameters. "
            "Write a `profile` (docs/planning.md), or measure it with a run that uses the SDK."
        )
    if is_assumed and spec.capacity is not None and spec.capacity.deadline is not None:
        click.echo(f"It is unknown whether the job meets its deadline: {UNMEASURED}.")
    if made.limited_by:
        page = f" Ask for more at {quotas_page}." if quotas_page else ""
        click.echo(f"No more nodes are possible: {no_room(made.limited_by)}.{page}")
    if not spec.pod.gpu:
        click.echo(f"Warning: job {spec.name}: {IDLE_GPUS}.", err=True)
    if not made.proven:
        click.echo("The planner did not try all placements: a better one may exist.")


def plan_table(made: Plan, *, gpus_per_node: int) -> Table:
    """The placements with their figures. Figures per step are left out if the speed is unknown."""
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
    """One line for each kind of machine."""
    where = [f"{count} × {choice.accelerator} {choice.zone}" for choice, count in nodes.items()]
    what = [f"{choice.machine_type}{'' if choice.spot else ' on demand'}" for choice in nodes]
    return tuple(Text("\n".join(map(plain, lines))) for lines in (where, what))


def _steps(score: Score) -> tuple[str, ...]:
    estimate = score.estimate
    return (
        f"{estimate.steps_per_s:.3g}",
        output.usd_text(estimate.micro_usd_per_hour, 2),
        output.usd_text(estimate.egress_micro_usd_per_hour, 2),
        output.usd_text(round(score.risk_micro_usd_per_hour), 2),
        output.usd_text(estimate.micro_usd_per_1000_steps, 2),
    )


def _prices(score: Score, gpus_per_node: int) -> tuple[str, ...]:
    return (
        output.usd_text(score.estimate.machines_micro_usd_per_hour, 2),
        output.usd_text(round(score.machines_per_node / gpus_per_node), 2),
        output.usd_text(round(score.risk_micro_usd_per_hour), 2),
    )


class NodesView(Struct, frozen=True):
    zone: str
    machine_type: str
    accelerator: str
    spot: bool
    nodes: int


class PlacementView(Struct, frozen=True):
    nodes: tuple[NodesView, ...]
    steps_per_s: float | None
    """Null if the time of a step is unknown, like all figures that depend on it."""
    machines_micro_usd_per_hour: int
    egress_micro_usd_per_hour: int | None
    risk_micro_usd_per_hour: int
    """The expected cost of losses; not part of any bill."""
    micro_usd_per_1000_steps: int | None
    why: str


class QuotaLimit(Struct, frozen=True):
    scope: str
    metric: str


class PlanView(Struct, frozen=True):
    job: str
    best: PlacementView
    alternatives: tuple[PlacementView, ...]
    is_assumed: bool
    """True without a profile: machines are compared by price or peak speed."""
    proven: bool
    measured: MeasuredProfile | None = None
    """What the job of this name measured while it trained."""
    limited_by: tuple[QuotaLimit, ...] = ()
    """Quotas that prevent more nodes, although the job could use more."""


def plan_view(job: str, made: Plan, *, is_assumed: bool, measured: MeasuredProfile | None = None) -> PlanView | None:
    if made.score is None:
        return None
    others = tuple(_placement(other.nodes, other.score, other.why_not) for other in made.alternatives)
    best = _placement(made.placement, made.score, made.why)
    limited_by = tuple(QuotaLimit(*key) for key in made.limited_by)
    return PlanView(job, best, others, is_assumed, made.proven, measured, limited_by)


def _placement(nodes: Nodes, score: Score, why: str) -> PlacementView:
    estimate = score.estimate
    return PlacementView(
        tuple(
            NodesView(kind.zone, kind.machine_type, kind.accelerator, kind.spot, count) for kind, count in nodes.items()
        ),
        None if score.is_assumed else estimate.steps_per_s,
        estimate.machines_micro_usd_per_hour,
        None if score.is_assumed else estimate.egress_micro_usd_per_hour,
        round(score.risk_micro_usd_per_hour),
        None if score.is_assumed else estimate.micro_usd_per_1000_steps,
        why,
    )
