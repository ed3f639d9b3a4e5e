"""Machines on offer in the master's API: `GET /v1/offers`.

Prices are for the whole machine, in millionths of a dollar: whole numbers, which all JSON readers represent exactly.
"""

from typing import Annotated

from msgspec import Meta, Struct

from messages.ids import Counted, Duration


class OfferView(Struct, frozen=True):
    zone: str
    region: str
    machine_type: str
    accelerator: str
    gpus: Counted
    gpu_memory_gib: Counted
    """Memory of one GPU."""
    vcpus: Counted
    memory_gib: Counted
    spot_micro_usd_per_hour: Counted | None = None
    on_demand_micro_usd_per_hour: Counted | None = None
    """None if the machine is not offered on demand."""
    availability: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The probability that a requested machine comes; None without observations."""
    mean_lifetime_s: Duration | None = None


class NeedView(Struct, frozen=True):
    """The amount of a quota that one node of a kind needs."""

    zone: str
    machine_type: str
    accelerator: str
    spot: bool
    amount: Counted


class QuotaView(Struct, frozen=True):
    scope: str
    """A region, or the whole project."""
    metric: str
    left: Counted
    """What is left for a new job, if all others gave their machines back."""
    needs: tuple[NeedView, ...] = ()


class OfferList(Struct, frozen=True):
    offers: tuple[OfferView, ...]
    date: str
    """The date of the price list."""
    source: str
    remembers: bool
    """False if the observations of zones were not read."""
    of_the_moment: bool = False
    """True if prices that change are current ones; the date is that of the list."""
    not_refreshed: str = ""
    """Why the list is not newer and what to do about it; empty if the last refresh succeeded."""
    quotas: tuple[QuotaView, ...] = ()
    """Quotas that limit the machines of the master's fleet."""
    quotas_page: str = ""
    """The web page where a person requests more quota."""
