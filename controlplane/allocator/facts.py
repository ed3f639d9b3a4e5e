"""What a plan is made from, as it is now; and whether a plan is still of it."""

from dataclasses import replace

from msgspec import structs

from controlplane.allocator.choices import choice_of, present_of, within_reach
from controlplane.allocator.counting import ceiling, is_paused
from controlplane.allocator.demand import Basis
from controlplane.allocator.prospects import Supplies
from controlplane.allocator.shelves import is_shaken, is_unsure
from controlplane.allocator.state import Allocator, Plans
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Present
from controlplane.planning.plan import Plan


def basis_of(allocator: Allocator, supplies: Supplies, now_s: float) -> Basis | None:
    """None where nothing can be planned: no prices are known, or nothing is wanted."""
    demand, market = allocator.demand, allocator.market
    if demand is None or market is None or not market.options or is_paused(allocator):
        return None
    criteria = structs.replace(demand.criteria, max_workers=ceiling(allocator))
    market, present = within_reach(market, supplies), present_of(supplies, now_s)
    return Basis(criteria, market, _without_hopes(allocator, criteria, market, present, now_s))


def _without_hopes(allocator: Allocator, criteria: Criteria, market: Market, present: Present, now_s: float) -> Present:
    """Places to which a plan must not turn, though nobody says just now that they have nothing.

    Where the last machine was taken lately, or nobody answered: such come last, only where others have too few. And
    where there was nothing lately, if what runs would have to go for it.
    """
    there = present.committed()
    runs = criteria.min_workers <= sum(there.values())
    is_full = criteria.max_workers <= sum(there.values())
    types = {choice.accelerator for choice in there}
    closed = set(present.stocked_out)
    for offer in allocator.offers:
        choice = choice_of(offer)
        if choice in there:
            continue
        instead = runs and (is_full or choice.accelerator not in types)
        if is_shaken(allocator, offer.stock, now_s) or (instead and is_unsure(allocator, offer.stock, now_s)):
            closed.add(choice)
    left: dict[str, int] = {}
    for choice, option in market.options.items():
        most = there.get(choice, 0) if choice in closed else option.limit
        left[choice.accelerator] = left.get(choice.accelerator, 0) + most
    enough = max(left.values(), default=0) >= criteria.min_workers
    return structs.replace(present, stocked_out=frozenset(closed)) if enough else present


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
