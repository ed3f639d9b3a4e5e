"""Accelerators by GKE's names, changes of capacity and price, lifetimes of spot nodes.

A price is for one accelerator with its share of the machine, for an hour. Machines without accelerators have the type
`cpu` and are counted in vCPUs. The default prices are Google's list prices of August 2026 in us-central1, rounded.
Traces, the generator and the control endpoint override the spot prices only.
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
    """Name of its quota in Compute."""
    short_names: tuple[str, ...] = ()
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
_BY_ANY_NAME = {**ACCELERATORS, **{short: each for each in _KNOWN for short in each.short_names}}


def accelerator(name: str) -> Accelerator | None:
    """Finds an accelerator by GKE's name or a shorter one, ignoring case."""
    return _BY_ANY_NAME.get(name.strip().lower())


Usd = Annotated[float, Meta(ge=0, le=1_000_000)]
Amount = Annotated[int, Meta(ge=0, le=1_000_000)]
NoticeSeconds = Annotated[float, Meta(ge=0, le=86_400)]
"""Seconds of notice in settings, traces and requests to the control endpoint."""


class Market(NamedTuple):
    zone: str
    accelerator: str

    def __str__(self) -> str:
        return f"{self.zone}/{self.accelerator}"


@dataclass(frozen=True, slots=True)
class Change:
    at_s: float
    """Seconds since the market opened."""
    market: Market
    capacity: int | None = None
    """Accelerators, or vCPUs, that spot nodes may use; None: unchanged."""
    price: MicroUsd | None = None
    """Spot price of one accelerator, or vCPU, for an hour; None: unchanged."""
    notice_s: float | None = None
    """Seconds of notice for nodes that this change preempts; None: the usual notice."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Lifetimes of spot nodes that are not preempted earlier: a Weibull distribution, cut off at `cap_s`.

    With a shape below 1, many nodes end early and old ones last long. `mean_s` is the mean without the cut. `cap_s` is
    the limit that some clouds set for every spot node, such as 24 hours.
    """

    mean_s: float
    shape: float = 0.7
    cap_s: float = math.inf

    def draw_s(self, seed: str) -> float:
        """A lifetime that depends only on the seed."""
        scale_s = self.mean_s / math.gamma(1 + 1 / self.shape)
        return min(self.cap_s, random.Random(seed).weibullvariate(scale_s, self.shape))
