"""What the master's API tells of machines that may be had: `GET /v1/offers`.

Prices are of the whole machine, in millionths of a dollar: whole numbers, which every reader of JSON keeps exact.
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
    """Of one GPU."""
    vcpus: Counted
    memory_gib: Counted
    spot_micro_usd_per_hour: Counted | None = None
    on_demand_micro_usd_per_hour: Counted | None = None
    """None where it is not offered so."""
    availability: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The chance that one comes when it is asked for; None where nothing was seen."""
    mean_lifetime_s: Duration | None = None


class NeedView(Struct, frozen=True):
    """What one node of a kind takes of a quota."""

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
    """For a new job, if all others gave theirs back."""
    needs: tuple[NeedView, ...] = ()


class OfferList(Struct, frozen=True):
    offers: tuple[OfferView, ...]
    date: str
    """Of the prices."""
    source: str
    remembers: bool
    """False where nobody was asked what was seen."""
    of_the_moment: bool = False
    """Prices move, and are those of now where they do; the date is of the list."""
    not_refreshed: str = ""
    """Why the list is not newer and what to do about it; empty if the last refresh succeeded."""
    quotas: tuple[QuotaView, ...] = ()
    """Those that limit the machines of the master's fleet."""
    quotas_page: str = ""
    """Where a person asks for more."""
