"""The part of the report about the cloud."""

from msgspec import Struct

from messages.costs import CostView
from messages.ids import Generation, WorkerId
from tradewind.demo.cloud.checks import regions_of
from tradewind.demo.cloud.facts import CloudFacts, How, PlanReported
from tradewind.demo.facts import Trained
from tradewind.terminal.costs import cost_lines


class NodeTaken(Struct, frozen=True):
    node: str
    zone: str
    notice_s: float
    worker: WorkerId | None
    after_step: int
    how: How
    left_after_s: float | None
    """Seconds from the notice or loss until the worker left; None if it did not leave."""


class WorldRegions(Struct, frozen=True):
    generation: Generation
    workers: dict[str, int]
    """Number of workers by region."""


class CloudReport(Struct, frozen=True):
    taken_with_notice: tuple[NodeTaken, ...]
    taken_without: tuple[NodeTaken, ...]
    losses: int
    stockouts: tuple[str, ...]
    """Zones that had no machines for a request."""
    asked_in: tuple[str, ...]
    """Zones in the order of the requests for machines."""
    regions: tuple[WorldRegions, ...]
    pools_left: int
    nodes_left: int
    bill_usd: float
    """The cloud's bill."""
    decisions: tuple[PlanReported, ...]
    cost: CostView | None
    """The cost in the ledger."""


def cloud_report(cloud: CloudFacts, trained: list[Trained]) -> CloudReport:
    taken = [(each.notice_s > 0, _taken(cloud, number)) for number, each in enumerate(cloud.taken)]
    return CloudReport(
        taken_with_notice=tuple(each for noticed, each in taken if noticed),
        taken_without=tuple(each for noticed, each in taken if not noticed),
        losses=cloud.losses,
        stockouts=tuple(dict.fromkeys(stockout.zone for stockout in cloud.stockouts)),
        asked_in=tuple(asked.zone for asked in cloud.asked),
        regions=tuple(_regions(cloud, world) for world in trained),
        pools_left=len(cloud.pools_left),
        nodes_left=len(cloud.nodes_left),
        bill_usd=round(cloud.bill_micro_usd / 1e6, 4),
        decisions=cloud.decisions,
        cost=cloud.cost,
    )


def cloud_lines(report: CloudReport) -> list[str]:
    taken = sorted((*report.taken_with_notice, *report.taken_without), key=lambda each: each.after_step)
    return [
        *(f"{_what(each)}; {_left(each)}" for each in taken),
        f"zones without machines: {', '.join(report.stockouts) or 'none'}; requests: {' → '.join(report.asked_in)}",
        "worlds: " + ", then ".join(_where(world) for world in report.regions),
        f"left in the cloud: {report.pools_left} pools, {report.nodes_left} nodes; its bill: {report.bill_usd:.4f} USD",
        *_first_decision(report.decisions),
        *(cost_lines(report.cost) if report.cost is not None else ()),
    ]


def _first_decision(decisions: tuple[PlanReported, ...]) -> list[str]:
    """The first plan; `tradewind explain` shows all."""
    if not decisions:
        return []
    first = decisions[0]
    return [
        f"the first of {len(decisions)} plans: {first.text}",
        f"  why: {first.why}",
        *(f"  rejected: {each}" for each in first.lost),
    ]


def _taken(cloud: CloudFacts, number: int) -> NodeTaken:
    taken = cloud.taken[number]
    parting = cloud.partings.get(taken.worker) if taken.worker is not None else None
    left_after_s = None if parting is None else round(parting.at - taken.at, 3)
    return NodeTaken(taken.node, taken.zone, taken.notice_s, taken.worker, taken.step, taken.how, left_after_s)


def _regions(cloud: CloudFacts, world: Trained) -> WorldRegions:
    places = [cloud.regions.get(worker, "") for worker in world.members]
    return WorldRegions(world.generation, {region: places.count(region) for region in regions_of(world, cloud)})


def _what(taken: NodeTaken) -> str:
    match taken.how:
        case How.HUNG:
            return f"node {taken.node} hung until the cloud repaired it"
        case How.UPGRADED:
            return f"node {taken.node} was drained for an upgrade"
    return f"node {taken.node} was " + (
        f"preempted with a notice of {taken.notice_s:g} s" if taken.notice_s else "lost without notice"
    )


def _left(taken: NodeTaken) -> str:
    if taken.left_after_s is None:
        return f"worker {taken.worker} did not leave"
    return f"worker {taken.worker} left after {taken.left_after_s:.2f} s"


def _where(world: WorldRegions) -> str:
    return " + ".join(f"{count} in {region}" for region, count in world.workers.items())
