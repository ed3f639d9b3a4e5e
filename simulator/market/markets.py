"""What a market sells: accelerators by the names that GKE gives them, changes of capacity and price, lifetimes.

A price is that of one accelerator with its share of the machine around it, for an hour. Machines without accelerators
are bought as `cpu`, and counted in vCPUs. The prices are Google's list prices of August 2026 in us-central1, rounded:
they hold until a trace, a generator or the control endpoint says otherwise.
"""

import math
import random
from dataclasses import dataclass
from typing import Annotated, NamedTuple, NewType

from msgspec import Meta

MicroUsd = NewType("MicroUsd", int)

CPU = "cpu"
FREE = MicroUsd(0)


@dataclass(frozen=True, slots=True)
class Accelerator:
    name: str
    on_demand: MicroUsd
    spot: MicroUsd
    quota: str
    """The name that Compute's quotas have for it."""
    also: tuple[str, ...] = ()
    """Shorter names that traces use."""


def micro_usd(usd: float) -> MicroUsd:
    return MicroUsd(round(usd * 1_000_000))


_KNOWN = (
    Accelerator("nvidia-tesla-t4", micro_usd(0.73), micro_usd(0.369), "NVIDIA_T4_GPUS", ("t4",)),
    Accelerator("nvidia-l4", micro_usd(0.854), micro_usd(0.512), "NVIDIA_L4_GPUS", ("l4",)),
    Accelerator("nvidia-tesla-v100", micro_usd(2.86), micro_usd(1.535), "NVIDIA_V100_GPUS", ("v100", "v100-16")),
    Accelerator("nvidia-tesla-a100", micro_usd(3.673), micro_usd(2.121), "NVIDIA_A100_GPUS", ("a100", "a100-40")),
    Accelerator("nvidia-a100-80gb", micro_usd(5.028), micro_usd(2.903), "NVIDIA_A100_80GB_GPUS", ("a100-80",)),
    Accelerator("nvidia-h100-80gb", micro_usd(10.979), micro_usd(6.587), "NVIDIA_H100_GPUS", ("h100",)),
    Accelerator("nvidia-h200-141gb", micro_usd(10.845), micro_usd(6.298), "NVIDIA_H200_GPUS", ("h200",)),
    Accelerator("nvidia-b200", micro_usd(11.277), micro_usd(4.954), "NVIDIA_B200_GPUS", ("b200",)),
    Accelerator(CPU, micro_usd(0.0335), micro_usd(0.0134), "CPUS"),
)
ACCELERATORS = {each.name: each for each in _KNOWN}
_BY_ANY_NAME = {**ACCELERATORS, **{short: each for each in _KNOWN for short in each.also}}


def accelerator(name: str) -> Accelerator | None:
    """By GKE's name or a shorter one, in any case."""
    return _BY_ANY_NAME.get(name.strip().lower())


Usd = Annotated[float, Meta(ge=0, le=1_000_000)]
Amount = Annotated[int, Meta(ge=0, le=1_000_000)]
NoticeSeconds = Annotated[float, Meta(ge=0, le=86_400)]
"""As long as a region takes it for."""


class Market(NamedTuple):
    zone: str
    accelerator: str

    def __str__(self) -> str:
        return f"{self.zone}/{self.accelerator}"


@dataclass(frozen=True, slots=True)
class Change:
    at_s: float
    """Since the market opened."""
    market: Market
    capacity: int | None = None
    """Accelerators that spot nodes may hold; None: as before."""
    price: MicroUsd | None = None
    """Of one accelerator for an hour; None: as before."""
    notice_s: float | None = None
    """What the nodes that this change takes are given; None: as usual."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long spot nodes live if nothing else takes them: a Weibull distribution.

    With a shape below 1 many die young, and those that last continue to last. `cap_s` is the limit that some clouds set
    for every spot node, such as 24 hours.
    """

    mean_s: float
    shape: float = 0.7
    cap_s: float = math.inf

    def draw_s(self, seed: str) -> float:
        """The same seed, the same lifetime."""
        scale_s = self.mean_s / math.gamma(1 + 1 / self.shape)
        return min(self.cap_s, random.Random(seed).weibullvariate(scale_s, self.shape))
