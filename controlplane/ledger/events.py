"""Everything that a ledger learns from. Times are whole milliseconds of Unix time."""

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.ledger.state import Activity, Rate


@dataclass(frozen=True, slots=True)
class Found:
    """A machine of the job, as the cloud lists it."""

    machine: str
    """Its id, which is never reused."""
    name: str
    kind: MachineKind
    started_ms: int


@dataclass(frozen=True, slots=True)
class MachinesListed:
    """All machines of the job at a time: a machine that is missing is gone or does not exist yet."""

    at_ms: int
    found: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class PricesChanged:
    """Prices that apply from then on, until the next change."""

    at_ms: int
    rates: Mapping[MachineKind, Rate]


@dataclass(frozen=True, slots=True)
class ActivitiesChanged:
    """The activities of these nodes from then on; other nodes keep theirs."""

    at_ms: int
    activities: Mapping[str, Activity]


@dataclass(frozen=True, slots=True)
class Hop:
    """The bytes that one step of the current world sends from one zone to another."""

    sender: str
    receiver: str
    bytes_per_step: int
    micro_usd_per_gib: MicroDollars


@dataclass(frozen=True, slots=True)
class StepsCommitted:
    at_ms: int
    first_step: int
    last_step: int
    samples: int = 0
    """All samples that the job has processed so far."""
    hops: tuple[Hop, ...] = ()


LedgerEvent = MachinesListed | PricesChanged | ActivitiesChanged | StepsCommitted
