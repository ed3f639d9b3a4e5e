"""Everything that teaches a ledger something. Times are whole milliseconds of Unix time."""

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.ledger.state import Doing, Rate


@dataclass(frozen=True, slots=True)
class Found:
    """A machine of the job, as the cloud lists it."""

    machine: str
    """Its id, which no other machine ever has."""
    name: str
    kind: MachineKind
    started_ms: int


@dataclass(frozen=True, slots=True)
class MachinesListed:
    """All machines of the job that there were at that moment: one that is not among them is gone, or not there yet."""

    at_ms: int
    found: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class PricesChanged:
    """From then on, and until told otherwise."""

    at_ms: int
    rates: Mapping[MachineKind, Rate]


@dataclass(frozen=True, slots=True)
class DoingsChanged:
    """What these nodes do from then on; of others nothing is said."""

    at_ms: int
    doings: Mapping[str, Doing]


@dataclass(frozen=True, slots=True)
class Hop:
    """What one step of the present world sends from a zone to another."""

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
    """All that the job has seen so far."""
    hops: tuple[Hop, ...] = ()


LedgerEvent = MachinesListed | PricesChanged | DoingsChanged | StepsCommitted
