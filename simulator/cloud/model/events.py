"""Everything that can happen to the cloud. `at_s` is the time at which the core learns it."""

from dataclasses import dataclass

from simulator.cloud.model.effects import RegionRequest
from simulator.cloud.model.requests import Request
from simulator.market.markets import Change


@dataclass(frozen=True, slots=True)
class Asked:
    at_s: float
    number: int
    """Number of the request; the answer carries it too."""
    request: Request


@dataclass(frozen=True, slots=True)
class MarketMoved:
    at_s: float
    change: Change


@dataclass(frozen=True, slots=True)
class RegionSeen:
    at_s: float
    region: str
    incarnation: str
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegionMissed:
    """The region did not answer."""

    at_s: float
    region: str
    why: str


@dataclass(frozen=True, slots=True)
class RegionObeyed:
    at_s: float
    number: int
    request: RegionRequest
    endpoint: str = ""
    ca: str = ""
    drained: bool = False


@dataclass(frozen=True, slots=True)
class RegionFailed:
    at_s: float
    number: int
    request: RegionRequest
    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    at_s: float


Event = Asked | MarketMoved | RegionSeen | RegionMissed | RegionObeyed | RegionFailed | Tick
