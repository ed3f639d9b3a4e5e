"""First half of a decision: learn from the event and from the time that passed. Nothing is decided here.

Late events are ignored. The fences are the numbers of operations and listings, the time at which a listing was
requested, and the uids of machines that are gone.
"""

from dataclasses import replace
from typing import assert_never

from controlplane.allocator import events
from controlplane.allocator.availability import close, reopen_after, start_cooldown
from controlplane.allocator.counting import is_settled, wants_none
from controlplane.allocator.idle import forget_idle_cap, note_free
from controlplane.allocator.learn_listing import fail_listing, learn_listing, learn_readiness
from controlplane.allocator.learn_nodes import (
    learn_observation,
    lose_cluster,
    lose_left,
    lose_overdue,
    revive,
    sideline,
)
from controlplane.allocator.learn_outcome import learn_outcome
from controlplane.allocator.quota_room import learn_quotas
from controlplane.allocator.starts import block_silent, give_up_unstartable, learn_starts, unblock_heard
from controlplane.allocator.state import Allocator, Pool, Shortage
from controlplane.allocator.use import cancel_dismissals, forget_cutback, note_use
from controlplane.planning.criteria import Criteria
from controlplane.throughput.profile import Profile


def learn(allocator: Allocator, event: events.AllocatorEvent) -> Allocator:
    learned = cancel_dismissals(_age(_take_in(allocator, event), event.at_s))
    return forget_cutback(allocator, forget_idle_cap(allocator, learned, event.at_s), event.at_s)


def _take_in(allocator: Allocator, event: events.AllocatorEvent) -> Allocator:
    match event:
        case events.Ticked():
            return allocator
        case events.NodesWanted():
            return _learn_want(allocator, event)
        case events.MarketSeen(at_s, market):
            return learn_quotas(replace(allocator, market=market), market.quotas, at_s)
        case events.QuotasSeen(at_s, quotas):
            return learn_quotas(allocator, quotas, at_s)
        case events.Planned():
            return _learn_plan(allocator, event)
        case events.PoolsListed():
            return learn_listing(allocator, event)
        case events.ListingFailed():
            return fail_listing(allocator, event)
        case events.ReadinessSeen():
            return learn_readiness(allocator, event)
        case events.NodesSeen(at_s, cluster, _, free):
            allocator = replace(allocator, lost=allocator.lost - {cluster}) if cluster in allocator.lost else allocator
            allocator = unblock_heard(learn_observation(allocator, event), cluster)
            return note_free(allocator, cluster, free, at_s) if free is not None else allocator
        case events.StartsSeen():
            return learn_starts(allocator, event)
        case events.ControllerFailed():
            return block_silent(allocator, event)
        case events.UseSeen():
            return note_use(allocator, event)
        case events.ProfileMeasured(_, profile):
            return _learn_profile(allocator, profile)
        case events.MachinesGivenBack(_, stock):
            return reopen_after(allocator, stock)
        case events.OperationEnded():
            return learn_outcome(allocator, event)
        case _:
            assert_never(event)


def _learn_want(allocator: Allocator, event: events.NodesWanted) -> Allocator:
    if event.number <= allocator.want:
        return allocator
    allocator = replace(
        allocator,
        want=event.number,
        wanted=max(0, event.nodes),
        ended=event.ended if allocator.ended is None else allocator.ended,
        lost=event.lost,
    )
    return _learn_criteria(allocator, event.criteria) if event.criteria is not None else allocator


def _age(allocator: Allocator, now_s: float) -> Allocator:
    """Learn from the passing of time: lost clusters, nodes that stay unready, expired notices, empty slots."""
    settings = allocator.settings
    for cluster in sorted(allocator.lost):
        allocator = lose_cluster(allocator, cluster, now_s)
    if wants_none(allocator) != (allocator.unwanted_since_s is not None):
        allocator = replace(allocator, unwanted_since_s=now_s if wants_none(allocator) else None)
    for pool in allocator.pools.values():
        left = allocator.released.get(pool.ref.cluster, frozenset())
        aged, sidelined = sideline(lose_left(revive(pool), left, settings, now_s), settings, now_s)
        aged, lost = lose_overdue(aged, settings, now_s)
        aged = give_up_unstartable(aged, allocator.failing.get(pool.ref.cluster, {}), settings, now_s)
        aged = _write_off(_note_emptiness(aged, now_s), settings.owed_s, now_s)
        aged = _give_up(aged, settings.hang_s, now_s)
        if lost or sidelined:
            allocator = start_cooldown(allocator, pool.offer.kind, now_s)
        if aged.empty_since_s is not None and now_s - aged.empty_since_s >= settings.arrival_s:
            detail = f"a slot of pool {pool.ref.pool} stayed empty for {settings.arrival_s:g} s"
            allocator = close(allocator, pool.offer.kind, Shortage.STOCKOUT, detail, now_s)
            aged = replace(aged, empty_since_s=now_s, granted=False)
        if aged != pool:
            allocator = replace(allocator, pools={**allocator.pools, pool.ref: aged})
    return allocator


def _write_off(pool: Pool, owed_s: float, now_s: float) -> Pool:
    since = pool.vacant | {node.name: node.lost_s for node in pool.nodes.values() if node.lost_s is not None}
    asked_again = pool.operation.vacant if pool.operation is not None and pool.operation.raises else frozenset()
    names = frozenset(name for name, at_s in since.items() if now_s - at_s >= owed_s) - asked_again
    return pool if names == pool.written_off else replace(pool, written_off=names)


def _give_up(pool: Pool, hang_s: float, now_s: float) -> Pool:
    """Abandon the empty slots of a pool that hangs too long; nodes that come anyway are surplus and removed."""
    hanging_s = pool.hanging_s if pool.target > len(pool.nodes) else None
    abandoned = hanging_s is not None and now_s - hanging_s >= hang_s
    if (hanging_s, abandoned) == (pool.hanging_s, pool.abandoned):
        return pool
    return replace(pool, hanging_s=hanging_s, abandoned=abandoned)


def _note_emptiness(pool: Pool, now_s: float) -> Pool:
    empty = is_settled(pool) and pool.target > len(pool.nodes)
    since_s = (pool.empty_since_s if pool.empty_since_s is not None else now_s) if empty else None
    return pool if since_s == pool.empty_since_s else replace(pool, empty_since_s=since_s)


def _learn_criteria(allocator: Allocator, criteria: Criteria) -> Allocator:
    if allocator.demand is None:
        return allocator
    return replace(allocator, demand=replace(allocator.demand, criteria=criteria))


def _learn_profile(allocator: Allocator, profile: Profile) -> Allocator:
    if allocator.demand is None:
        return allocator
    plans = replace(allocator.plans, not_before_s=None)
    return replace(allocator, demand=replace(allocator.demand, profile=profile), plans=plans)


def _learn_plan(allocator: Allocator, event: events.Planned) -> Allocator:
    plans = allocator.plans
    if plans.asked is None or event.number != plans.number:
        return allocator
    return replace(allocator, plans=replace(plans, asked=None, plan=event.plan, basis=plans.asked))
