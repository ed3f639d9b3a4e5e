"""What must hold after every decision of the allocator, whatever happened."""

from collections.abc import Sequence

from controlplane.allocator.counting import total
from controlplane.allocator.effects import (
    AllocatorEffect,
    Change,
    CreatePool,
    DeletePool,
    ListPools,
    RemoveNodes,
    ResizePool,
)
from controlplane.allocator.state import Allocator, Pool


def check(before: Allocator, after: Allocator, effects: Sequence[AllocatorEffect]) -> list[str]:
    changes = [effect for effect in effects if isinstance(effect, Change)]
    return [
        *_of_order(before, after, effects, changes),
        *_of_caps(after, changes),
        *_of_nodes(after, changes),
        *_of_the_end(after, changes),
    ]


def _of_order(
    before: Allocator, after: Allocator, effects: Sequence[AllocatorEffect], changes: Sequence[Change]
) -> list[str]:
    broken = []
    refs = [change.ref for change in changes]
    if changes and not after.synced:
        broken.append("something was changed before the first listing")
    if len(set(refs)) < len(refs):
        broken.append("two operations were asked for on one pool")
    for change in changes:
        operation = after.pools[change.ref].operation
        if operation is None or operation.number != change.operation:
            broken.append(f"operation {change.operation} is not kept with its pool")
        if change.operation <= before.operations:
            broken.append(f"operation {change.operation} has an old number")
        if after.pools[change.ref].doubt is not None:
            broken.append(f"pool {change.ref.pool} was changed before it was listed again")
    if sum(isinstance(effect, ListPools) for effect in effects) > 1:
        broken.append("listed twice at once")
    raised = [number for number, change in enumerate(changes) if _raises(after, change)]
    lowered = [number for number, change in enumerate(changes) if isinstance(change, ResizePool | RemoveNodes)]
    if raised and any(number > raised[0] and not _raises(after, changes[number]) for number in lowered):
        broken.append("a pool was raised before another was lowered")
    return broken


def _of_caps(after: Allocator, changes: Sequence[Change]) -> list[str]:
    broken = []
    raised = [change for change in changes if _raises(after, change)]
    if raised and total(after.pools.values()) > after.wanted:
        broken.append(f"{total(after.pools.values())} nodes may come, {after.wanted} are wanted")
    for change in raised:
        pool = after.pools[change.ref]
        if pool.operation is not None and pool.operation.target > pool.offer.max_nodes:
            broken.append(f"pool {change.ref.pool} may have {pool.offer.max_nodes} nodes at most")
        if pool.offer.pool is not None:
            broken.append(f"pool {change.ref.pool}, which no offer would make, was raised")
    return broken


def _of_nodes(after: Allocator, changes: Sequence[Change]) -> list[str]:
    broken = []
    for change in changes:
        pool = after.pools[change.ref]
        if isinstance(change, ResizePool) and not _raises(after, change) and change.size < len(pool.nodes):
            broken.append(f"pool {change.ref.pool} shrinks to {change.size} by nodes of the cloud's choice")
        if isinstance(change, RemoveNodes):
            broken += [f"{name} is in use" for name in change.nodes if _is_in_use(after, pool, name)]
    return broken


def _of_the_end(after: Allocator, changes: Sequence[Change]) -> list[str]:
    broken = []
    if after.ended is not None and any(not isinstance(change, DeletePool) for change in changes):
        broken.append("the job has ended, and something else than a deletion was asked for")
    if after.finished and any(pool.exists or pool.operation is not None for pool in after.pools.values()):
        broken.append("called finished, but pools are left")
    return broken


def _raises(after: Allocator, change: Change) -> bool:
    operation = after.pools[change.ref].operation
    return isinstance(change, CreatePool | ResizePool) and operation is not None and operation.raises


def _is_in_use(allocator: Allocator, pool: Pool, name: str) -> bool:
    node = pool.nodes.get(name)
    released = name in allocator.released.get(pool.ref.cluster, frozenset())
    return node is not None and node.lost_s is None and node.was_ready and not released
