"""A plan as JSON: money as whole numbers of micro-dollars."""

from msgspec import Struct

from controlplane.planning.market import Nodes
from controlplane.planning.plan import Plan
from controlplane.planning.scoring import Score
from messages.measured import MeasuredProfile


class NodesView(Struct, frozen=True):
    zone: str
    machine_type: str
    accelerator: str
    spot: bool
    nodes: int


class PlacementView(Struct, frozen=True):
    nodes: tuple[NodesView, ...]
    steps_per_s: float | None
    """Null, as all that depends on it, where the time of a step is unknown."""
    machines_micro_usd_per_hour: int
    egress_micro_usd_per_hour: int | None
    risk_micro_usd_per_hour: int
    """Nobody bills it: what the losses to expect would cost."""
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
    """There is no profile: machines are compared by price."""
    proven: bool
    measured: MeasuredProfile | None = None
    """By the job of this name, while it trained."""
    limited_by: tuple[QuotaLimit, ...] = ()
    """Quotas that leave no room for another node, where the job may have more."""


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
