"""The state of a ledger: settled amounts, and recent facts that are not added up yet.

A fact may come twice, late or out of order: the facts of the last minute are only gathered, and added up when they are
older. Each machine stores the time up to which it is settled, so that no time counts twice.

Times are whole milliseconds of Unix time; money is exact (see `amounts`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from messages.ids import JobName

SETTLES_MS = 60_000
"""Milliseconds by which a fact may be late and still count from its own time."""
LATE_MS = 3_600_000
"""Milliseconds for which time without a known price waits longer: it costs the first price that comes. Activities are
kept for the same time, for machines that are found late."""
PRICES_AT_MOST = 200
"""Price changes of one kind of machine, for machines that are found long after their start."""
ACTIVITIES_AT_MOST = 200
"""Activity changes of one node, while the cloud does not list its machines."""
ENDED_AT_MOST = 500
"""Tombstones of machines, so that a late listing of one does not count its life again."""
HOURS_AT_MOST = 48


class Rate(NamedTuple):
    """The price of one machine in micro-dollars an hour; None if not known."""

    paid: MicroDollars | None
    on_demand: MicroDollars | None = None
    """What the same machine costs on demand."""


class Activity(StrEnum):
    STARTING = "starting"
    """It boots, pulls an image, or its worker warms up."""
    WORKING = "working"
    """It holds a rank of a running world."""
    RECOVERING = "recovering"
    """Its job forms or reshapes a world."""
    IDLE = "idle"
    """It holds no rank."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine from its start to its end; a later machine may have the same name."""

    name: str
    kind: MachineKind
    started_ms: int
    seen_ms: int
    """Time of the newest listing that has it."""
    settled_ms: int = 0
    """The time up to which it is settled."""


class Line(NamedTuple):
    kind: MachineKind
    activity: Activity


@dataclass(frozen=True, slots=True)
class Tally:
    node_ms: int = 0
    cost: int = 0
    on_demand_cost: int = 0
    """What the same time would cost on demand; without an on-demand price, what was paid."""
    unpriced_ms: int = 0
    """Time without a known price: it counts as free."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.node_ms + other.node_ms,
            self.cost + other.cost,
            self.on_demand_cost + other.on_demand_cost,
            self.unpriced_ms + other.unpriced_ms,
        )


@dataclass(frozen=True, slots=True)
class Sent:
    """Egress from one zone to another."""

    sent_bytes: int = 0
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Ledger:
    job: JobName
    since_ms: int
    """When the job was submitted: machines that an earlier job left to it count from then."""
    lines: Mapping[Line, Tally] = field(default_factory=dict)
    hours: Mapping[int, int] = field(default_factory=dict)
    """Cost by hour since 1970, for the last 48 hours with costs."""
    egress: Mapping[tuple[str, str], Sent] = field(default_factory=dict)
    first_step: int | None = None
    last_step: int | None = None
    samples: int = 0
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """Current and recently removed machines, by the cloud's id."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """Machines that are gone, and the time up to which each was settled."""
    looks_ms: tuple[int, ...] = ()
    """Times of recent listings of the cloud."""
    prices: Mapping[MachineKind, tuple[tuple[int, Rate], ...]] = field(default_factory=dict)
    activities: Mapping[str, tuple[tuple[int, Activity], ...]] = field(default_factory=dict)
    """By the name of the node."""
    newest_ms: int = 0

    @property
    def steps(self) -> int:
        if self.first_step is None or self.last_step is None:
            return 0
        return self.last_step - self.first_step + 1

    @property
    def looked_ms(self) -> int:
        """Time of the last listing of the cloud, or of the job's submission if there was none."""
        return self.looks_ms[-1] if self.looks_ms else self.since_ms

    @property
    def settles_ms(self) -> int:
        """The time before which facts are added up."""
        return self.newest_ms - SETTLES_MS


def new_ledger(job: JobName, since_ms: int) -> Ledger:
    return Ledger(job, since_ms)
