"""The inventory of the cloud: clusters, pools and machines of all owners."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from controlplane.clouds.interface import Cloud, ClusterInfo, MachineInfo, PoolInfo
from controlplane.clouds.outcomes import Refused, Unreachable
from messages.ids import JobName
from messages.labels import FLEET_LABEL, JOB_LABEL, LEASE_LABEL

Resource = PoolInfo | ClusterInfo | MachineInfo
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    clusters: tuple[ClusterInfo, ...]
    machines: tuple[MachineInfo, ...] = ()

    @property
    def pools(self) -> Iterator[PoolInfo]:
        return (pool for cluster in self.clusters for pool in cluster.pools)

    @property
    def resources(self) -> Iterator[Resource]:
        yield from self.clusters
        yield from self.pools
        yield from self.machines

    @property
    def jobs(self) -> set[JobName]:
        """The jobs in the labels of pools and machines."""
        labels = [*(pool.labels for pool in self.pools), *(machine.labels for machine in self.machines)]
        return {job for each in labels if (job := job_of(each)) is not None}


async def look(cloud: Cloud) -> Inventory | Unreachable | Refused:
    """List the whole cloud, or nothing: missing entries of a partial list would look like removed resources.

    Machines are listed last: those of a pool that is deleted meanwhile go with it, and new ones are young.
    """
    clusters = await cloud.clusters()
    if isinstance(clusters, Unreachable | Refused):
        return clusters
    machines = await cloud.machines()
    if isinstance(machines, Unreachable | Refused):
        return machines
    return Inventory(tuple(clusters), tuple(machines))


def name_of(resource: Resource) -> str:
    match resource:
        case PoolInfo():
            return f"pool {resource.ref.pool} of {resource.ref.cluster}"
        case ClusterInfo():
            return f"cluster {resource.name}"
        case MachineInfo():
            return f"machine {resource.name}"
        case _:
            assert_never(resource)


def key_of(resource: Resource) -> Key:
    """The key of a resource; a later resource of the same name has another key, if the cloud shows the difference."""
    match resource:
        case PoolInfo():
            return "pool", resource.ref.cluster, resource.ref.pool, resource.labels.get(LEASE_LABEL, "")
        case ClusterInfo():
            return "cluster", resource.name, resource.location
        case MachineInfo():
            return "machine", resource.id
        case _:
            assert_never(resource)


def is_of(labels: Mapping[str, str], fleet: str) -> bool:
    """Report whether the labels name this fleet; a resource without the label belongs to somebody else."""
    return labels.get(FLEET_LABEL) == fleet


def job_of(labels: Mapping[str, str]) -> JobName | None:
    name = labels.get(JOB_LABEL, "")
    return JobName(name) if name else None


def pool_of(machine: MachineInfo, pools: Iterable[PoolInfo]) -> PoolInfo | None:
    """The pool with the machine's job, kind and zone; if two clusters have one, the one in the machine's name."""
    fits = [pool for pool in pools if _traits(pool) == _traits(machine)]
    named = [pool for pool in fits if pool.ref.pool in machine.name]
    return next(iter(named or fits), None)


def _traits(of: PoolInfo | MachineInfo) -> tuple[object, ...]:
    return of.labels.get(FLEET_LABEL), job_of(of.labels), of.kind.zone, of.kind.machine_type, of.kind.spot
