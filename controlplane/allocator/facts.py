"""What a plan is made from, as it is now; and whether a plan is still of it."""

from dataclasses import replace

from msgspec import structs

from controlplane.allocator.calm import calm_first, taken_lately
from controlplane.allocator.choices import choice_of, present_of, within_reach
from controlplane.allocator.counting import ceiling, is_paused, is_resting
from controlplane.allocator.demand import Basis
from controlplane.allocator.prospects import Supplies
from controlplane.allocator.shelves import is_distrusted, is_unsure
from controlplane.allocator.state import Allocator, Plans
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Present
from controlplane.planning.plan import Plan


def basis_of(allocator: Allocator, supplies: Supplies, now_s: float) -> Basis | None:
    """None where nothing can be planned: no prices are known, or nothing is wanted."""
    demand, market = allocator.demand, allocator.market
    if demand is None or market is None or not market.options or is_paused(allocator) or is_resting(allocator):
        return None
    criteria = structs.replace(demand.criteria, max_workers=ceiling(allocator))
    market = within_reach(market, supplies)
    present = _without_risky_moves(allocator, criteria, market, present_of(supplies, now_s), now_s)
    calm = calm_first(criteria, demand.profile, market, present, taken_lately(allocator, now_s))
    return Basis(criteria, demand.profile, calm, present)


def _without_risky_moves(
    allocator: Allocator, criteria: Criteria, market: Market, present: Present, now_s: float
) -> Present:
    """What runs is not given up for places that had nothing, or took a machine, lately."""
    there = present.committed()
    running = sum(count for choice, count in there.items() if choice in market.options)
    if running < criteria.min_workers:
        return present
    is_full = criteria.max_workers <= running
    types = {choice.accelerator for choice in there}
    closed = {
        choice
        for offer in allocator.offers
        if (choice := choice_of(offer)) not in there
        and (is_full or choice.accelerator not in types)
        and (is_distrusted(allocator, offer.stock, now_s) or is_unsure(allocator, offer.stock, now_s))
    }
    return structs.replace(present, stocked_out=present.stocked_out | closed)


def note(plans: Plans, basis: Basis | None, now_s: float) -> Plans:
    return plans if basis == plans.facts else replace(plans, facts=basis, facts_s=now_s)


def current(plans: Plans) -> Plan | None:
    """The newest plan, if the world, the market and the criteria are exactly those that it was made from."""
    return plans.plan if plans.facts is not None and plans.basis == plans.facts else None


def aimed_at(plans: Plans) -> int | None:
    """Workers of the newest plan: all else that it said may be wrong by now. What was to go first does not count."""
    if plans.plan is None:
        return None
    return min(sum(plans.plan.ask.values()), sum(plans.plan.placement.values()))


def plan_due_s(allocator: Allocator) -> float | None:
    """When the next plan is to be asked for; None while there is nothing new to plan, or one is being made."""
    plans, settings = allocator.plans, allocator.settings
    if plans.asked is not None and plans.asked_s is not None:
        return plans.asked_s + settings.plan_timeout_s
    if plans.facts is None or current(plans) is not None:
        return None
    if plans.asked_s is None:
        return plans.facts_s
    return min(plans.facts_s + settings.plan_settle_s, plans.asked_s + settings.plan_every_s)
