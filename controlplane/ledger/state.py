"""What a ledger knows: what is added up for good, and the facts of late from which the rest follows.

A fact may come twice, late, or after one that happened later: the facts of the last minute are only gathered, and
added up when they are older. How far each machine's time is added up is kept with the machine, so that no moment counts
twice, whoever counts.

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
"""How late a fact may come and still count for what came before it."""
LATE_MS = 3_600_000
"""How much longer time waits to be added up of which no price is known: it is paid at the first that comes. So long is
also remembered what nodes did, for machines that are found late."""
PRICES_AT_MOST = 200
"""Of one kind of machine: for machines that are found long after they were started."""
DOINGS_AT_MOST = 200
"""Of one node: while the cloud does not tell whether it is there."""
ENDED_AT_MOST = 500
"""Machines that are gone, kept so that a late sight of one does not count its life again."""
HOURS_AT_MOST = 48


class Rate(NamedTuple):
    """Of one machine, in micro-dollars an hour; None where no price is known."""

    paid: MicroDollars | None
    on_demand: MicroDollars | None = None
    """What the same machine costs on demand."""


class Doing(StrEnum):
    STARTING = "starting"
    """It boots, or pulls an image, or its worker warms up."""
    WORKING = "working"
    """It holds a rank of a world that runs."""
    RECOVERING = "recovering"
    """It holds a rank of a world that is being made or was lost."""
    IDLE = "idle"
    """It holds no rank."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine from its start to its end; the next one under the same name is another."""

    name: str
    kind: MachineKind
    started_ms: int
    seen_ms: int
    """The newest look that found it."""
    settled_ms: int = 0
    """Its time before this is added up."""


class Line(NamedTuple):
    kind: MachineKind
    doing: Doing


@dataclass(frozen=True, slots=True)
class Tally:
    node_ms: int = 0
    cost: int = 0
    on_demand_cost: int = 0
    """What the same time would have cost on demand; what has no such price counts as it was paid."""
    unpriced_ms: int = 0
    """Time of which no price is known: it counts as free."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.node_ms + other.node_ms,
            self.cost + other.cost,
            self.on_demand_cost + other.on_demand_cost,
            self.unpriced_ms + other.unpriced_ms,
        )


@dataclass(frozen=True, slots=True)
class Sent:
    """From one zone to another."""

    sent_bytes: int = 0
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Ledger:
    job: JobName
    since_ms: int
    """When the job was submitted: machines that it was left by another count from then."""
    lines: Mapping[Line, Tally] = field(default_factory=dict)
    hours: Mapping[int, int] = field(default_factory=dict)
    """Cost by the hour since 1970, of the last two days."""
    egress: Mapping[tuple[str, str], Sent] = field(default_factory=dict)
    first_step: int | None = None
    last_step: int | None = None
    samples: int = 0
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """By the cloud's id; those that are there, and those that went of late."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """Until when machines were added up that are gone."""
    looks_ms: tuple[int, ...] = ()
    """When the cloud was asked what there is, of late."""
    prices: Mapping[MachineKind, tuple[tuple[int, Rate], ...]] = field(default_factory=dict)
    doings: Mapping[str, tuple[tuple[int, Doing], ...]] = field(default_factory=dict)
    """By the name of the node."""
    newest_ms: int = 0

    @property
    def steps(self) -> int:
        if self.first_step is None or self.last_step is None:
            return 0
        return self.last_step - self.first_step + 1

    @property
    def looked_ms(self) -> int:
        """When the cloud last told what there is; if it never did, when the job was submitted."""
        return self.looks_ms[-1] if self.looks_ms else self.since_ms

    @property
    def settles_ms(self) -> int:
        """What happened before this is added up."""
        return self.newest_ms - SETTLES_MS


def new_ledger(job: JobName, since_ms: int) -> Ledger:
    return Ledger(job, since_ms)
