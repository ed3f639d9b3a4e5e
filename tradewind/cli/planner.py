"""Runs the planner on the offers of a master, of the shipped data, or of a fleet."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from controlplane.capacity.fleet_offers import limits_of, priced
from controlplane.catalog import memory
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.links import Links
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Catalog, Offer
from controlplane.catalog.shipped import shipped_catalog, shipped_links
from controlplane.clouds.interface import QuotaKey
from controlplane.clouds.spec import Fleet
from controlplane.fleet.interpretation import offers
from controlplane.planning.criteria import criteria_of
from controlplane.planning.market import UNLIMITED, Quotas, Seen, market_of
from controlplane.planning.plan import Plan, plan
from controlplane.planning.refusals import refusals
from controlplane.throughput.profile import Profile
from messages.jobs import JobSpec
from messages.offers import OfferList, OfferView
from runtime.errors import UserError


class FleetOffers(Struct, frozen=True):
    offers: Sequence[Offer]
    links: Links
    seen: Seen
    limits: Mapping[MachineKind, int] | None = None
    """Most nodes of each kind, if a fleet limits them."""
    quotas: Quotas = UNLIMITED
    """The quotas that the master has read."""


def fleet_offers(known: OfferList) -> FleetOffers:
    """The offers of a master, with details from the shipped data, such as the network."""
    shipped = shipped_catalog()
    pairs = [
        (view, offer)
        for view in known.offers
        if (offer := shipped.find(view.zone, view.machine_type, view.accelerator)) is not None
    ]
    views = {(view.zone, view.accelerator): view for view, _ in pairs}
    priors = memory.Priors()

    def seen(zone: str, accelerator: str) -> memory.Estimate:
        view = views[zone, accelerator]
        return memory.Estimate(
            priors.availability if view.availability is None else view.availability,
            priors.lifetime_s if view.mean_lifetime_s is None else view.mean_lifetime_s,
            priors.boot_s,
            0.0,
        )

    return FleetOffers([_priced(offer, view) for view, offer in pairs], shipped_links(), seen, quotas=_quotas(known))


def _quotas(known: OfferList) -> Quotas:
    left = {QuotaKey(each.scope, each.metric): each.left for each in known.quotas}
    gpus = {(view.zone, view.machine_type, view.accelerator): view.gpus for view in known.offers}
    needs: dict[MachineKind, dict[QuotaKey, int]] = {}
    for each in known.quotas:
        for need in each.needs:
            named = (need.zone, need.machine_type, need.accelerator)
            kind = MachineKind(*named, gpus.get(named, 0), need.spot)
            needs.setdefault(kind, {})[QuotaKey(each.scope, each.metric)] = need.amount
    return Quotas(left, needs, known.quotas_page)


def of_fleet(found: FleetOffers, fleet: Fleet) -> FleetOffers:
    known = offers(fleet)
    left = priced(Catalog(tuple(found.offers), "", ""), known)
    if not left:
        raise UserError(
            f"Fleet {fleet.name} offers no machine with a known price.",
            "compare its `offers` with `tradewind offers`",
        )
    return structs.replace(found, offers=left, limits=limits_of(known))


def _priced(offer: Offer, view: OfferView) -> Offer:
    spot, on_demand = view.spot_micro_usd_per_hour, view.on_demand_micro_usd_per_hour
    return structs.replace(
        offer,
        spot_micro_usd_per_hour=None if spot is None else MicroDollars(spot),
        on_demand_micro_usd_per_hour=None if on_demand is None else MicroDollars(on_demand),
    )


def planned(spec: JobSpec, found: FleetOffers, name: str, profile: Profile) -> Plan:
    """The plan. Raises `UserError` if there is none."""
    criteria = criteria_of(spec)
    market = market_of(criteria, found.offers, found.links, seen=found.seen, limits=found.limits, quotas=found.quotas)
    problems = refusals(spec, criteria, found.offers, market, profile)
    if problems:
        lines = tuple(f"{path}: {text}" for path, text in problems)
        raise UserError(f"{name} cannot be planned:", "tradewind offers", lines)
    made = plan(criteria, profile, market)
    if made.score is None:
        raise UserError(f"{name} cannot be planned: {made.why}", "raise a limit, or allow more regions")
    return made
