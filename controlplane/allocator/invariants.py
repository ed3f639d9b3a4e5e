"""What must hold after every decision of the allocator."""

from collections.abc import Sequence

from controlplane.allocator.availability import is_closed
from controlplane.allocator.caps import money_per_hour
from controlplane.allocator.counting import ceiling, held, is_dismissed, total
from controlplane.allocator.effects import (
    AllocatorEffect,
    Change,
    CreatePool,
    DeletePool,
    ListPools,
    MakePlan,
    Place,
    RemoveNodes,
    ResizePool,
)
from controlplane.allocator.quota_room import may_come
from controlplane.allocator.starts import is_blocked
from controlplane.allocator.state import Allocator, Pool
from controlplane.catalog.money import usd_text
from controlplane.planning.quotas import taken


def check(before: Allocator, after: Allocator, effects: Sequence[AllocatorEffect]) -> list[str]:
    changes = [effect for effect in effects if isinstance(effect, Change)]
    return [
        *_of_order(before, after, effects, changes),
        *_of_caps(after, changes),
        *_of_the_market(after, changes),
        *_of_quotas(after, changes),
        *_of_starts(after, changes),
        *_of_plans(before, effects),
        *_of_nodes(after, changes),
        *_of_dismissals(after),
        *_of_the_end(after, changes),
    ]


def _of_order(
    before: Allocator, after: Allocator, effects: Sequence[AllocatorEffect], changes: Sequence[Change]
) -> list[str]:
    broken = []
    refs = [change.ref for change in changes]
    if changes and not after.synced:
        broken.append("a pool was changed before the first listing")
    places = [effect for effect in effects if isinstance(effect, Place)]
    if any(place.workers is not None for place in places) and not after.synced and after.ended is None:
        broken.append("workers were placed before the first listing")
    if len(set(refs)) < len(refs):
        broken.append("two operations were requested for one pool")
    for change in changes:
        operation = after.pools[change.ref].operation
        if operation is None or operation.number != change.operation:
            broken.append(f"operation {change.operation} is not stored with its pool")
        if change.operation <= before.operations:
            broken.append(f"operation {change.operation} has an old number")
        if after.pools[change.ref].doubt is not None:
            broken.append(f"pool {change.ref.pool} was changed before it was listed again")
    if sum(isinstance(effect, ListPools) for effect in effects) > 1:
        broken.append("two listings were requested at once")
    raised = [number for number, change in enumerate(changes) if _raises(after, change)]
    lowered = [number for number, change in enumerate(changes) if isinstance(change, ResizePool | RemoveNodes)]
    if raised and any(number > raised[0] and not _raises(after, changes[number]) for number in lowered):
        broken.append("a pool was raised before another was lowered")
    return broken


def _of_caps(after: Allocator, changes: Sequence[Change]) -> list[str]:
    broken = []
    raised = [change for change in changes if _raises(after, change)]
    if raised and total(after.pools.values()) > ceiling(after):
        broken.append(f"{total(after.pools.values())} nodes may come, {ceiling(after)} are wanted")
    for change in raised:
        pool = after.pools[change.ref]
        if pool.operation is not None and pool.operation.target > pool.offer.max_nodes:
            broken.append(f"pool {change.ref.pool} may have {pool.offer.max_nodes} nodes at most")
        if pool.offer.pool is not None:
            broken.append(f"pool {change.ref.pool} was raised without an offer")
    return broken


def _of_the_market(after: Allocator, changes: Sequence[Change]) -> list[str]:
    """For a planned job whose pools are raised: the cap on money, one type of accelerator, the limits of zones."""
    raised = [after.pools[change.ref] for change in changes if _raises(after, change)]
    if after.demand is None or not raised:
        return []
    if after.market is None:
        return ["a pool was raised before prices were known"]
    broken, coming, market = [], may_come(after, with_sidelined=True), after.market
    cap, money = after.demand.criteria.max_micro_usd_per_hour, money_per_hour(after.demand, market, coming)
    if cap is not None and money > cap:
        broken.append(f"nodes for ${usd_text(money)} an hour may come, ${usd_text(cap)} are allowed")
    if len({choice.accelerator for choice in coming}) > 1:
        broken.append("two types of accelerators may come")
    for pool in raised:
        choice = pool.offer.kind
        if choice not in market.options:
            broken.append(f"pool {pool.ref.pool} was raised, but is not allowed or has no price")
        elif coming[choice] > market.options[choice].limit:
            broken.append(f"{coming[choice]} nodes may come in {choice.zone}, more than it has")
        if pool.operation is not None and is_closed(after, pool.offer.kind, pool.operation.asked_s):
            broken.append(f"pool {pool.ref.pool} was raised during a pause after a shortage")
    return broken


def _of_quotas(after: Allocator, changes: Sequence[Change]) -> list[str]:
    """No pool is raised beyond a quota. A quota that became smaller removes no nodes."""
    raised = {after.pools[change.ref].offer.kind for change in changes if _raises(after, change)}
    used, left = taken(after.quotas, may_come(after, with_noticed=True)), after.quotas.left
    return [
        f"{used[key]} of quota {key.metric} in {key.scope} may be used, which has {left[key]}"
        for key in {key for choice in raised for key in after.quotas.needs.get(choice, {})}
        if key in left and used[key] > left[key]
    ]


def _of_starts(after: Allocator, changes: Sequence[Change]) -> list[str]:
    raised = [after.pools[change.ref] for change in changes if _raises(after, change)]
    return [
        f"pool {pool.ref.pool} was raised in {pool.ref.cluster}, where workers cannot start"
        for pool in raised
        if pool.operation is not None and is_blocked(after, pool.ref.cluster, pool.operation.asked_s)
    ]


def _of_plans(before: Allocator, effects: Sequence[AllocatorEffect]) -> list[str]:
    numbers = [effect.number for effect in effects if isinstance(effect, MakePlan)]
    if len(numbers) > 1:
        return ["two plans were requested at once"]
    return [f"plan {number} has an old number" for number in numbers if number <= before.plans.number]


def _of_nodes(after: Allocator, changes: Sequence[Change]) -> list[str]:
    broken = []
    for change in changes:
        pool = after.pools[change.ref]
        if isinstance(change, ResizePool) and not _raises(after, change) and change.size < len(pool.nodes):
            broken.append(f"pool {change.ref.pool} shrinks to {change.size}: the cloud chooses the nodes")
        if isinstance(change, RemoveNodes):
            broken += [f"{name} is in use" for name in change.nodes if _is_in_use(after, pool, name)]
    return broken


def _of_dismissals(after: Allocator) -> list[str]:
    """At most one node is dismissed at a time, and none that the job needs; nodes that are being removed are exempt."""
    if after.demand is None:
        return []
    kept = [
        node.name
        for pool in after.pools.values()
        for node in pool.nodes.values()
        if is_dismissed(node) and not (pool.operation is not None and node.name in pool.operation.nodes)
    ]
    too_few = sum(map(held, after.pools.values())) < after.demand.criteria.min_workers
    return [f"{', '.join(kept)} dismissed though needed, or together"] if len(kept) > 1 or (kept and too_few) else []


def _of_the_end(after: Allocator, changes: Sequence[Change]) -> list[str]:
    broken = []
    if after.ended is not None and any(not isinstance(change, DeletePool) for change in changes):
        broken.append("the job has ended, but a change other than a deletion was requested")
    if after.finished and any(pool.exists or pool.operation is not None for pool in after.pools.values()):
        broken.append("the allocator is finished, but pools are left")
    return broken


def _raises(after: Allocator, change: Change) -> bool:
    operation = after.pools[change.ref].operation
    return isinstance(change, CreatePool | ResizePool) and operation is not None and operation.raises


def _is_in_use(allocator: Allocator, pool: Pool, name: str) -> bool:
    node = pool.nodes.get(name)
    released = name in allocator.released.get(pool.ref.cluster, frozenset())
    return node is not None and node.lost_s is None and node.was_ready and not released
