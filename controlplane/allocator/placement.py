"""Where a job's workers are to be: one for each node that is there or on its way, but no more than are wanted.

A node too many gets no worker, so that it falls free and can go. A cluster in which workers are at work keeps one at
least: none at all would be an order to end all of them, and who goes is for the job to decide.
"""

from collections.abc import Callable

from controlplane.allocator.counting import at_most, held, spare
from controlplane.allocator.effects import Place
from controlplane.allocator.explanations import shortage
from controlplane.allocator.prospects import known_offers
from controlplane.allocator.state import Allocator, Pool
from messages.clusters import ClusterHeartbeat, Presence
from messages.ids import ClusterName, JobName
from messages.workers import WorkerPhase

Placement = dict[ClusterName, int]


def place_of(allocator: Allocator, now_s: float) -> Place:
    """What the job is to be told now."""
    return Place(
        want=allocator.want,
        workers=placement_of(allocator) if allocator.synced or allocator.ended is not None else None,
        shortage=shortage(allocator, now_s),
        leaving=allocator.leaving,
        at_once=_goes_at_once(allocator),
    )


def placement_of(allocator: Allocator) -> Placement:
    if allocator.ended is not None:
        return {}
    placement: Placement = {}
    for pool in allocator.pools.values():
        _add(placement, pool.ref.cluster, at_most(pool))
    for cluster, names in allocator.leaving.items():
        count = placement.get(cluster, 0)
        _add(placement, cluster, -min(count - 1, len(names)) if count else 0)
    surplus = sum(placement.values()) - allocator.wanted
    for room in (_coming, _unused(allocator)):
        for pool in _least_liked_first(allocator):
            less = max(0, min(surplus, room(pool), placement[pool.ref.cluster]))
            _add(placement, pool.ref.cluster, -less)
            surplus -= less
    for pool in _least_liked_first(allocator):
        less = max(0, min(surplus, placement[pool.ref.cluster] - 1))
        _add(placement, pool.ref.cluster, -less)
        surplus -= less
    return {cluster: count for cluster, count in placement.items() if count}


def free_nodes(topology: ClusterHeartbeat, job: JobName) -> tuple[str, ...]:
    """Nodes of the job on which it has no worker that does or is about to do anything.

    Of a worker that has not spoken it is not known where it is: until it has, none is free. While others are still
    warming up, an idle one is the first that the job will use.
    """
    workers = [sight for sight in topology.workers if sight.job == job and sight.presence is not Presence.GONE]
    if any(sight.status is None or not sight.status.node for sight in workers):
        return ()
    statuses = [sight.status for sight in workers if sight.status is not None]
    warming = any(status.phase is WorkerPhase.WARMING for status in statuses)
    busy = {status.node for status in statuses if warming or status.phase is not WorkerPhase.IDLE}
    return tuple(node.node for node in topology.nodes if node.job == job and node.node not in busy)


def _goes_at_once(allocator: Allocator) -> bool:
    """All that are left are needed to train and are to go, and nothing else is on its way: nothing has room."""
    if allocator.demand is None or not allocator.leaving:
        return False
    there = sum(held(pool) for pool in allocator.pools.values())
    coming = sum(_coming(pool) for pool in allocator.pools.values())
    return there <= allocator.demand.criteria.min_workers and coming == 0


def _coming(pool: Pool) -> int:
    """Of a pool that was found, nodes that nobody has looked for yet may be there, with workers on them."""
    return 0 if pool.adopted and pool.sighted_s is None else at_most(pool) - held(pool)


def _unused(allocator: Allocator) -> Callable[[Pool], int]:
    return lambda pool: len(spare(allocator, pool))


def _least_liked_first(allocator: Allocator) -> list[Pool]:
    """Before them those of which it is not known what they aim at."""
    liked = {offer: number for number, offer in enumerate(known_offers(allocator))}
    return sorted(allocator.pools.values(), key=lambda pool: (pool.doubt is None, -liked[pool.offer]))


def _add(placement: Placement, cluster: ClusterName, count: int) -> None:
    placement[cluster] = placement.get(cluster, 0) + count
