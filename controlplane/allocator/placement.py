"""Where a job's workers should be: one for each node that exists or is coming, and no more than are wanted.

A surplus node gets no worker, so that it becomes free and can be removed. A cluster with nodes in use keeps at least
one worker: 0 would order it to end all of them, and the job decides which workers leave.
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
    """The current placement for the job."""
    return Place(
        want=allocator.want,
        workers=placement_of(allocator) if allocator.synced or allocator.ended is not None else None,
        shortage=shortage(allocator, now_s),
        leaving=allocator.leaving,
        at_once=_leaves_at_once(allocator),
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
        for pool in _least_wanted_first(allocator):
            less = max(0, min(surplus, room(pool), placement[pool.ref.cluster]))
            _add(placement, pool.ref.cluster, -less)
            surplus -= less
    for pool in _least_wanted_first(allocator):
        less = max(0, min(surplus, placement[pool.ref.cluster] - 1))
        _add(placement, pool.ref.cluster, -less)
        surplus -= less
    return {cluster: count for cluster, count in placement.items() if count}


def free_nodes(topology: ClusterHeartbeat, job: JobName) -> tuple[str, ...]:
    """Nodes of the job without a worker that does or will do anything.

    The node of a worker that has not reported is not known: until it reports, no node is free. While other workers are
    still warming up, an idle one is the first that the job will use.
    """
    workers = [
        observation
        for observation in topology.workers
        if observation.job == job and observation.presence is not Presence.GONE
    ]
    if any(observation.status is None or not observation.status.node for observation in workers):
        return ()
    statuses = [observation.status for observation in workers if observation.status is not None]
    warming = any(status.phase is WorkerPhase.WARMING for status in statuses)
    busy = {status.node for status in statuses if warming or status.phase is not WorkerPhase.IDLE}
    return tuple(node.node for node in topology.nodes if node.job == job and node.node not in busy)


def _leaves_at_once(allocator: Allocator) -> bool:
    """Report whether nodes must leave before replacements can come: none is coming, and no node is surplus."""
    if allocator.demand is None or not allocator.leaving:
        return False
    there = sum(held(pool) for pool in allocator.pools.values())
    coming = sum(_coming(pool) for pool in allocator.pools.values())
    return there <= allocator.demand.criteria.min_workers and coming == 0


def _coming(pool: Pool) -> int:
    """Nodes that do not exist yet; 0 for an adopted pool without observations, whose nodes may exist."""
    return 0 if pool.adopted and pool.sighted_s is None else at_most(pool) - held(pool)


def _unused(allocator: Allocator) -> Callable[[Pool], int]:
    return lambda pool: len(spare(allocator, pool))


def _least_wanted_first(allocator: Allocator) -> list[Pool]:
    """Pools of the least wanted offers first, before them pools whose target is in doubt."""
    order = {offer: number for number, offer in enumerate(known_offers(allocator))}
    return sorted(allocator.pools.values(), key=lambda pool: (pool.doubt is None, -order[pool.offer]))


def _add(placement: Placement, cluster: ClusterName, count: int) -> None:
    placement[cluster] = placement.get(cluster, 0) + count
