"""The current inputs of a plan, and whether the newest plan still fits them."""

from dataclasses import replace

from msgspec import structs

from controlplane.allocator.availability import is_in_cooldown, was_refused_recently
from controlplane.allocator.choices import current_capacity_of, within_reach
from controlplane.allocator.cooldown import cooldown_ends, cooldown_zones_last
from controlplane.allocator.counting import ceiling, is_paused, is_resting
from controlplane.allocator.demand import Basis
from controlplane.allocator.prospects import Supplies
from controlplane.allocator.state import Allocator, Plans
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, Market, Nodes
from controlplane.planning.plan import Plan
from controlplane.planning.scoring import is_affordable, score
from controlplane.planning.tuning import Tuning

NOISE = 0.02
"""Relative price change that does not need a new plan; running nodes only move for a gain of at least 0.1."""
_TUNING = Tuning()


def basis_of(allocator: Allocator, supplies: Supplies, now_s: float) -> Basis | None:
    """The inputs of a plan; None if nothing can be planned: no prices are known, or no nodes are wanted."""
    demand, market = allocator.demand, allocator.market
    if demand is None or market is None or not market.options or is_paused(allocator) or is_resting(allocator):
        return None
    criteria = structs.replace(demand.criteria, max_workers=ceiling(allocator))
    market = within_reach(structs.replace(market, quotas=allocator.quotas), supplies)
    current = _without_risky_moves(allocator, criteria, market, current_capacity_of(supplies, now_s), now_s)
    quiet = cooldown_zones_last(criteria, demand.profile, market, current, cooldown_ends(allocator, now_s))
    return Basis(criteria, demand.profile, quiet, current)


def _without_risky_moves(
    allocator: Allocator, criteria: Criteria, market: Market, current: CurrentCapacity, now_s: float
) -> CurrentCapacity:
    """The current capacity, with zones closed to moves if they recently had no machines or preempted one."""
    there = current.committed()
    running = sum(count for choice, count in there.items() if choice in market.options)
    if running < criteria.min_workers:
        return current
    is_full = criteria.max_workers <= running
    types = {choice.accelerator for choice in there}
    closed = {
        choice
        for offer in allocator.offers
        if (choice := offer.kind) not in there
        and (is_full or choice.accelerator not in types)
        and (is_in_cooldown(allocator, offer.kind, now_s) or was_refused_recently(allocator, offer.kind, now_s))
    }
    return structs.replace(current, stocked_out=current.stocked_out | closed)


def note(plans: Plans, basis: Basis | None, now_s: float, settle_s: float) -> Plans:
    """Store the new inputs. Small price changes keep the old ones: otherwise no plan would ever be current."""
    if basis == plans.facts or (basis is not None and plans.facts is not None and _is_noise(plans, plans.facts, basis)):
        return plans
    has_settled = now_s - plans.facts_s >= settle_s
    changing_since_s = now_s if has_settled else plans.changing_since_s
    return replace(plans, facts=basis, facts_s=now_s, changing_since_s=changing_since_s)


def _is_noise(plans: Plans, known: Basis, now: Basis) -> bool:
    if (known.criteria, known.profile, known.current) != (now.criteria, now.profile, now.current):
        return False
    if not moved_by_a_little(known.market, now.market):
        return False
    placement = plans.plan.placement if plans.plan is not None and plans.basis == known else {}
    return all(_is_paid(now, nodes) for nodes in (now.current.committed(), placement))


def _is_paid(basis: Basis, nodes: Nodes) -> bool:
    """Report whether these nodes stay within the cap on money an hour."""
    if basis.criteria.max_micro_usd_per_hour is None or not nodes.keys() <= basis.market.options.keys():
        return True
    found = score(basis.profile, basis.market, nodes, _TUNING)
    return found is None or is_affordable(basis.criteria, found)


def moved_by_a_little(known: Market, now: Market) -> bool:
    """Report whether the markets differ only in prices, each by less than `NOISE`."""
    if known.options.keys() != now.options.keys() or (known.links, known.quotas) != (now.links, now.quotas):
        return False
    for choice, option in known.options.items():
        other, price = now.options[choice], option.micro_usd_per_hour
        if abs(other.micro_usd_per_hour - price) > NOISE * price:
            return False
        if option != structs.replace(other, micro_usd_per_hour=price):
            return False
    return True


def current_plan(plans: Plans) -> Plan | None:
    """The newest plan, if its inputs are still the current ones."""
    return plans.plan if plans.facts is not None and plans.basis == plans.facts else None


def target_workers(plans: Plans) -> int | None:
    """Number of workers in the newest plan, without nodes that it lets go first; its places may be outdated."""
    if plans.plan is None:
        return None
    return min(sum(plans.plan.ask.values()), sum(plans.plan.placement.values()))


def plan_due_s(allocator: Allocator) -> float | None:
    """When to request the next plan; None if nothing changed or nothing can be planned.

    The inputs must settle first, so that a wave of losses is one plan. While they do not, a plan is due some time after
    the first change since the last request.
    """
    plans, settings = allocator.plans, allocator.settings
    if plans.asked is not None and plans.asked_s is not None:
        return plans.asked_s + settings.plan_timeout_s
    if plans.facts is None or current_plan(plans) is not None:
        return None
    if plans.asked_s is None:
        return plans.facts_s if plans.not_before_s is None else max(plans.facts_s, plans.not_before_s)
    unplanned_since_s = max(plans.changing_since_s, plans.asked_s)
    return min(plans.facts_s + settings.plan_settle_s, unplanned_since_s + settings.plan_every_s)
