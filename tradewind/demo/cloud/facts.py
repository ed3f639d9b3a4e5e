"""The recorded facts about the cloud: faults and their results."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from messages.api import EventLine
from messages.costs import CostView
from messages.events import LOSER_FIELD, EventKind
from messages.ids import Generation, WorkerId

RELEASED = "released"
"""Begins the reason of a worker that left after a hand-over."""


class How(enum.StrEnum):
    """What the cloud did to a node."""

    PREEMPTED = "preempted"
    HUNG = "hung"
    """The node stopped reporting and was repaired later."""
    UPGRADED = "upgraded"


@dataclass(frozen=True, slots=True)
class Taken:
    """A node that the cloud preempted, or re-created."""

    node: str
    zone: str
    notice_s: float
    """0: without notice."""
    generation: Generation
    step: int
    at: float
    """Unix seconds of the notice, or of the loss."""
    worker: WorkerId | None = None
    """The worker on the node, if known."""
    how: How = How.PREEMPTED
    renewed_at: float | None = None
    """When another machine had its name, or no machine had it."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Nodes that the master removed."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Parting:
    at: float
    why: str

    @property
    def released(self) -> bool:
        return self.why.startswith(RELEASED)


@dataclass(frozen=True, slots=True)
class Asked:
    """Nodes that the master requested from the cloud."""

    zone: str
    region: str
    at: float


@dataclass(frozen=True, slots=True)
class Stockout:
    zone: str
    region: str
    at: float


@dataclass(frozen=True, slots=True)
class PlanReported:
    """A plan: the placement and its reason."""

    text: str
    why: str
    lost: tuple[str, ...]
    """Rejected placements, and how much worse they are."""


@dataclass(frozen=True, slots=True)
class CloudFacts:
    clusters: int
    """Clusters in the fleet file."""
    taken: tuple[Taken, ...] = ()
    partings: Mapping[WorkerId, Parting] = field(default_factory=dict)
    regions: Mapping[WorkerId, str] = field(default_factory=dict)
    """The region of each worker."""
    asked: tuple[Asked, ...] = ()
    stockouts: tuple[Stockout, ...] = ()
    """Stockouts that the master met."""
    removals: tuple[Removal, ...] = ()
    losses: int = 0
    """Workers that the master counted as lost."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """Successful calls of the cloud's API, by method."""
    pools_left: tuple[str, ...] = ()
    """Pools of the job after its end."""
    nodes_left: tuple[str, ...] = ()
    bill_micro_usd: int = 0
    """The cloud's bill."""
    decisions: tuple[PlanReported, ...] = ()
    cost: CostView | None = None
    """The cost in the master's ledger."""


def partings_in(events: Iterable[EventLine]) -> dict[WorkerId, Parting]:
    return {
        WorkerId(str(each.fields["worker"])): Parting(each.at, each.why) for each in _of(EventKind.WORKER_GONE, events)
    }


def clusters_in(events: Iterable[EventLine]) -> dict[WorkerId, str]:
    """The cluster of each worker."""
    return {
        WorkerId(str(each.fields["worker"])): str(each.fields["cluster"])
        for each in _of(EventKind.WORKER_JOINED, events)
    }


def identified(taken: Taken, events: Iterable[EventLine], members: frozenset[WorkerId]) -> WorkerId | None:
    """The worker on a node: the first member with a notice, or a loss, after the fault."""
    for event in events:
        worker = WorkerId(str(event.fields.get("worker", "")))
        if event.at < taken.at or worker not in members:
            continue
        if taken.notice_s and event.kind == EventKind.WORKER_NOTICED:
            return worker
        if not taken.notice_s and event.kind == EventKind.WORKER_GONE and not event.why.startswith(RELEASED):
            return worker
    return None


def asked_in(events: Iterable[EventLine]) -> list[tuple[str, float]]:
    """Zone and time of each request for nodes."""
    return [
        (str(each.fields["zone"]), each.at)
        for each in events
        if each.kind in (EventKind.POOL_CREATED, EventKind.POOL_RAISED)
    ]


def removals_in(events: Iterable[EventLine]) -> tuple[Removal, ...]:
    return tuple(Removal(each.at, each.text) for each in _of(EventKind.NODES_REMOVED, events))


def stockouts_in(events: Iterable[EventLine]) -> list[tuple[str, float]]:
    return [(str(each.fields["zone"]), each.at) for each in _of(EventKind.ZONE_STOCKED_OUT, events)]


def decisions_in(events: Iterable[EventLine]) -> tuple[PlanReported, ...]:
    return tuple(PlanReported(each.text, each.why, _lost(each)) for each in _of(EventKind.PLANNED, events))


def _lost(event: EventLine) -> tuple[str, ...]:
    return tuple(str(value) for name, value in event.fields.items() if name.startswith(LOSER_FIELD))


def _of(kind: str, events: Iterable[EventLine]) -> list[EventLine]:
    return [event for event in events if event.kind == kind]
