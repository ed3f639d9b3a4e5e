"""What a plan is made from, as it is now; and whether a plan is still of it."""

from dataclasses import replace

from msgspec import structs

from controlplane.allocator.availability import is_distrusted, is_unsure
from controlplane.allocator.choices import present_of, within_reach
from controlplane.allocator.cooldown import rested_zones_first, taken_lately
from controlplane.allocator.counting import ceiling, is_paused, is_resting
from controlplane.allocator.demand import Basis
from controlplane.allocator.prospects import Supplies
from controlplane.allocator.state import Allocator, Plans
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Nodes, Present
from controlplane.planning.plan import Plan
from controlplane.planning.scoring import is_affordable, score
from controlplane.planning.tuning import Tuning

NOISE = 0.02
"""Part of a price; what runs is given up for a tenth of the whole at least."""
_TUNING = Tuning()


def basis_of(allocator: Allocator, supplies: Supplies, now_s: float) -> Basis | None:
    """None where nothing can be planned: no prices are known, or nothing is wanted."""
    demand, market = allocator.demand, allocator.market
    if demand is None or market is None or not market.options or is_paused(allocator) or is_resting(allocator):
        return None
    criteria = structs.replace(demand.criteria, max_workers=ceiling(allocator))
    market = within_reach(structs.replace(market, quotas=allocator.quotas), supplies)
    present = _without_risky_moves(allocator, criteria, market, present_of(supplies, now_s), now_s)
    calm = rested_zones_first(criteria, demand.profile, market, present, taken_lately(allocator, now_s))
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
        if (choice := offer.kind) not in there
        and (is_full or choice.accelerator not in types)
        and (is_distrusted(allocator, offer.kind, now_s) or is_unsure(allocator, offer.kind, now_s))
    }
    return structs.replace(present, stocked_out=present.stocked_out | closed)


def note(plans: Plans, basis: Basis | None, now_s: float) -> Plans:
    """Prices that moved by a little are the same facts: else no plan would be of the present where they always move."""
    if basis == plans.facts or (basis is not None and plans.facts is not None and _is_noise(plans, plans.facts, basis)):
        return plans
    return replace(plans, facts=basis, facts_s=now_s)


def _is_noise(plans: Plans, known: Basis, now: Basis) -> bool:
    if (known.criteria, known.profile, known.present) != (now.criteria, now.profile, now.present):
        return False
    if not moved_by_a_little(known.market, now.market):
        return False
    placement = plans.plan.placement if plans.plan is not None and plans.basis == known else {}
    return all(_is_paid(now, nodes) for nodes in (now.present.committed(), placement))


def _is_paid(basis: Basis, nodes: Nodes) -> bool:
    """However little it is, the cap on money is not passed by it."""
    if basis.criteria.max_micro_usd_per_hour is None or not nodes.keys() <= basis.market.options.keys():
        return True
    found = score(basis.profile, basis.market, nodes, _TUNING)
    return found is None or is_affordable(basis.criteria, found)


def moved_by_a_little(known: Market, now: Market) -> bool:
    """Nothing but prices, each by so small a part that nobody would plan otherwise."""
    if known.options.keys() != now.options.keys() or (known.links, known.quotas) != (now.links, now.quotas):
        return False
    for choice, option in known.options.items():
        other, price = now.options[choice], option.micro_usd_per_hour
        if abs(other.micro_usd_per_hour - price) > NOISE * price:
            return False
        if option != structs.replace(other, micro_usd_per_hour=price):
            return False
    return True


def current(plans: Plans) -> Plan | None:
    """The newest plan, if the world, the market and the criteria are those that it was made from."""
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
        return plans.facts_s if plans.not_before_s is None else max(plans.facts_s, plans.not_before_s)
    return min(plans.facts_s + settings.plan_settle_s, plans.asked_s + settings.plan_every_s)
