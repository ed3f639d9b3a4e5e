"""Values derived from the state: running nodes, operations under way, status of pools and clusters."""

import enum
from collections.abc import Iterator

from simulator.cloud.model.names import ClusterKey, NodeName, PoolKey
from simulator.cloud.model.state import Cloud, Cluster, Failure, Kind, Node, Operation, Pool


class Status(enum.StrEnum):
    PROVISIONING = "PROVISIONING"
    RUNNING = "RUNNING"
    RUNNING_WITH_ERROR = "RUNNING_WITH_ERROR"
    RECONCILING = "RECONCILING"
    STOPPING = "STOPPING"
    ERROR = "ERROR"


class NodePhase(enum.StrEnum):
    WAITING = "waiting"
    """It has no instance yet."""
    BOOTING = "booting"
    RUNNING = "running"
    NOTICED = "noticed"
    """It is under notice."""


def nodes_of(cloud: Cloud, key: PoolKey) -> list[Node]:
    return [node for node in cloud.nodes.values() if node.pool == key]


def members(cloud: Cloud, key: PoolKey, zone: str | None = None) -> list[Node]:
    """Nodes that count for the target."""
    return [node for node in nodes_of(cloud, key) if not node.leaving and zone in (None, node.zone)]


def pools_of(cloud: Cloud, key: ClusterKey) -> list[Pool]:
    return [pool for pool in cloud.pools.values() if pool.key.of == key]


def phase(cloud: Cloud, node: Node) -> NodePhase:
    if node.instance is None:
        return NodePhase.WAITING
    if node.instance.is_noticed:
        return NodePhase.NOTICED
    known_node = cloud.region_nodes.get(node.name)
    is_there = known_node is not None and known_node.reported.id == node.instance.id
    return NodePhase.RUNNING if is_there else NodePhase.BOOTING


def is_running(cloud: Cloud, node: Node) -> bool:
    return phase(cloud, node) is NodePhase.RUNNING


def is_full(cloud: Cloud, pool: Pool) -> bool:
    """True if each group has as many nodes as its target, and all run."""
    for group in pool.groups:
        there = members(cloud, pool.key, group.zone)
        if len(there) != group.target or not all(is_running(cloud, node) for node in there):
            return False
    return True


def has_conflict(cloud: Cloud, key: PoolKey) -> bool:
    """True if an operation under way conflicts with another on this pool."""
    return any(operation.pool in ("", key.pool) for operation in under_way(cloud, key.of))


def under_way(cloud: Cloud, cluster: ClusterKey) -> Iterator[Operation]:
    """GKE's unfinished operations on a cluster. Compute's operations do not conflict with them."""
    for operation in cloud.operations.values():
        if operation.cluster == cluster and not operation.is_done and operation.kind is not Kind.DELETE_INSTANCES:
            yield operation


def failures(cloud: Cloud, key: PoolKey) -> list[tuple[Node, Failure]]:
    """Nodes that were refused an instance and still have none."""
    return [(node, node.refused) for node in members(cloud, key) if node.instance is None and node.refused is not None]


def pool_status(cloud: Cloud, pool: Pool) -> Status:
    if pool.deleting:
        return Status.STOPPING
    kinds = {operation.kind for operation in under_way(cloud, pool.key.of) if operation.pool in ("", pool.key.pool)}
    if Kind.CREATE_CLUSTER in kinds or Kind.CREATE_POOL in kinds:
        return Status.PROVISIONING
    if kinds:
        return Status.RECONCILING
    if pool.status_error is not None:
        return Status.ERROR if pool.status_error.is_unusable else Status.RUNNING_WITH_ERROR
    return Status.RUNNING_WITH_ERROR if failures(cloud, pool.key) else Status.RUNNING


def cluster_status(cloud: Cloud, cluster: Cluster) -> Status:
    if cluster.deleting:
        return Status.STOPPING
    kinds = {operation.kind for operation in under_way(cloud, cluster.key)}
    if Kind.CREATE_CLUSTER in kinds:
        return Status.PROVISIONING
    if cluster.failed is not None:
        return Status.ERROR
    return Status.RECONCILING if kinds else Status.RUNNING


def is_gone(cloud: Cloud, node: NodeName, region: str) -> bool:
    """True if cloud and region no longer have the node; a region that does not answer counts as empty."""
    if node in cloud.nodes:
        return False
    known = cloud.regions.get(region)
    return node not in cloud.region_nodes or known is None or not known.reachable
