"""Views of offers for people, with the observations of their zones."""

from collections.abc import Iterable

from controlplane.catalog.memory import Estimate, Memory, estimate
from controlplane.catalog.offers import Catalog, Offer
from messages.offers import OfferList, OfferView


def offer_list(catalog: Catalog, memory: Memory | None, at: float, offers: Iterable[Offer] | None = None) -> OfferList:
    """The view of a catalog's offers; without a memory it has no availability."""
    chosen = catalog.offers if offers is None else offers
    return OfferList(
        offers=tuple(offer_view(offer, memory, at) for offer in chosen),
        date=catalog.date,
        source=catalog.source,
        remembers=memory is not None,
    )


def offer_view(offer: Offer, memory: Memory | None, at: float) -> OfferView:
    seen = _seen(memory, offer, at)
    return OfferView(
        zone=offer.zone,
        region=offer.region,
        machine_type=offer.machine_type,
        accelerator=offer.accelerator,
        gpus=offer.gpus,
        gpu_memory_gib=offer.gpu_memory_gib,
        vcpus=offer.vcpus,
        memory_gib=offer.memory_gib,
        spot_micro_usd_per_hour=offer.spot_micro_usd_per_hour,
        on_demand_micro_usd_per_hour=offer.on_demand_micro_usd_per_hour,
        availability=None if seen is None else seen.availability,
        mean_lifetime_s=None if seen is None else seen.mean_lifetime_s,
    )


def _seen(memory: Memory | None, offer: Offer, at: float) -> Estimate | None:
    """The estimate of an offer's zone; None without observations."""
    if memory is None:
        return None
    seen = estimate(memory, offer.zone, offer.accelerator, at)
    return seen if seen.observations > 0 else None
