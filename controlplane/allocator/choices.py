"""The fleet's offers, grouped by the market's choices: several clusters may offer the same choice."""

from collections.abc import Iterable, Mapping

from msgspec import structs

from controlplane.allocator.fleet_order import Supply, expected, has_no_more, most_of
from controlplane.allocator.offers import Offer
from controlplane.catalog.kinds import MachineKind
from controlplane.planning.market import CurrentCapacity, Market


def by_choice(offers: Iterable[Offer]) -> dict[MachineKind, list[Offer]]:
    """Offers by choice, in the fleet's order."""
    found: dict[MachineKind, list[Offer]] = {}
    for offer in offers:
        found.setdefault(offer.kind, []).append(offer)
    return found


def within_reach(market: Market, supplies: Mapping[Offer, Supply]) -> Market:
    """The market, limited to the nodes that reachable clusters can provide and those that the job holds.

    While nodes are sidelined, the limit allows only their replacements: a node that may soon be back is no reason to
    move running nodes.
    """
    room: dict[MachineKind, int] = {}
    aside = sum(supply.aside for supply in supplies.values())
    for offer, supply in supplies.items():
        choice = offer.kind
        most = max(supply.held, most_of(offer, supply)) if supply.reachable else supply.held
        if aside:
            most = max(supply.held, min(most, supply.held + supply.coming + aside))
        room[choice] = room.get(choice, 0) + most
    less = {
        choice: structs.replace(option, limit=room.get(choice, 0))
        for choice, option in market.options.items()
        if room.get(choice, 0) < option.limit
    }
    return structs.replace(market, options={**market.options, **less}) if less else market


def current_capacity_of(supplies: Mapping[Offer, Supply], now_s: float) -> CurrentCapacity:
    held: dict[MachineKind, int] = {}
    in_flight: dict[MachineKind, int] = {}
    stocked_out = set()
    for offer, supply in supplies.items():
        choice, coming = offer.kind, expected(supply, now_s) - supply.held
        if supply.held:
            held[choice] = held.get(choice, 0) + supply.held
        if coming:
            in_flight[choice] = in_flight.get(choice, 0) + coming
        if has_no_more(supply, now_s):
            stocked_out.add(choice)
    return CurrentCapacity(dict(sorted(held.items())), dict(sorted(in_flight.items())), frozenset(stocked_out))
