"""Finds resources to remove, and similar ones that stay, each with the reason. Pure.

The inventory must be older than the claims. A master writes a job's record before it requests resources for it, so the
records that are read later include the job of every listed resource.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from controlplane.clouds.interface import ClusterInfo, ClusterStatus, MachineInfo, PoolInfo, PoolStatus
from controlplane.reaper.inventory import Inventory, Resource, is_of, job_of, key_of, name_of, pool_of
from controlplane.reaper.ownership_labels import YOUNG_S, asked_at, is_of_bus
from controlplane.reaper.state import Claim, Claims
from messages.ids import ClusterName, JobName

ELSEWHERE = "it was not requested over this bus, so the records here do not show whether its job lives"
OWNED_AGAIN = "it has an owner again"
UNREADABLE = "its job's record cannot be read"
DELETING = "it is already being deleted"


class Clusters(StrEnum):
    """The clusters of the fleet that may be removed."""

    FAILED = "failed"
    """Clusters whose creation failed and that are not in the fleet file: no job can run in them."""
    UNNAMED = "unnamed"
    """All clusters that are not in the fleet file."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class FleetScope:
    name: str
    clusters: Collection[ClusterName]
    """Names of the clusters in the fleet file."""


@dataclass(frozen=True, slots=True)
class Found:
    resource: Resource
    why: str
    job: JobName | None = None
    since: float | None = None
    """Unix seconds of its creation; None if not known."""
    machines: tuple[MachineInfo, ...] = ()
    """Machines that are removed with it."""


@dataclass(frozen=True, slots=True)
class Findings:
    orphans: tuple[Found, ...]
    left: tuple[Found, ...]


def sort_out(
    inventory: Inventory,
    claims: Claims,
    fleet: FleetScope,
    now: float,
    clusters: Clusters = Clusters.UNNAMED,
    bus: str | None = None,
) -> Findings:
    """The findings at `now` (Unix seconds). With `bus`, only pools that were requested over it are orphans.

    Resources that are removed with their cluster are not listed separately.
    """
    return _Sorting(inventory, claims, fleet, now, clusters, bus).findings()


def why_not_removed(found: Found, inventory: Inventory, now: Findings) -> str:
    """Why an earlier finding stays by a later look; empty if it is still an orphan, or gone."""
    if any(key_of(each.resource) == key_of(found.resource) for each in now.orphans):
        return ""
    name = name_of(found.resource)
    if name not in {name_of(resource) for resource in inventory.resources}:
        return ""
    left = next((each for each in now.left if name_of(each.resource) == name), None)
    if left is None:
        return OWNED_AGAIN
    return "" if _is_going(left.resource) else left.why


def unknown(job: JobName | None) -> str:
    return f"no job {job} is known"


def has_ended(job: JobName | None) -> str:
    return f"job {job} has ended"


def removed_by_master(job: JobName | None) -> str:
    return f"{has_ended(job)}, and its master removes its resources"


def too_young(age_s: float) -> str:
    return f"it was asked for {max(0, round(age_s))} s ago, and its job may not be known yet"


def in_no_pool(why: str) -> str:
    return f"it is in no pool, and {why}"


def two_clusters(name: ClusterName) -> str:
    return f"two clusters have the name {name}, so that a removal might hit the wrong one"


def has_pool(job: JobName | None) -> str:
    return f"job {job} has a pool in it"


def has_foreign_pool(pool: str) -> str:
    return f"it has the pool {pool}, which does not belong to this fleet"


class _Sorting:
    def __init__(
        self,
        inventory: Inventory,
        claims: Claims,
        fleet: FleetScope,
        now: float,
        clusters: Clusters,
        bus: str | None,
    ) -> None:
        self._inventory = inventory
        self._claims = claims
        self._fleet = fleet
        self._now = now
        self._clusters = clusters
        self._bus = bus
        self._names = Counter(cluster.name for cluster in inventory.clusters)
        self._machines: dict[object, list[MachineInfo]] = {}
        self._strays: list[MachineInfo] = []
        pools = tuple(inventory.pools)
        for machine in inventory.machines:
            pool = pool_of(machine, pools)
            if pool is not None:
                self._machines.setdefault(pool.ref, []).append(machine)
            else:
                self._strays.append(machine)

    def findings(self) -> Findings:
        orphans: list[Found] = []
        left: list[Found] = []
        for cluster in self._inventory.clusters:
            goes, kept = self._in_cluster(cluster)
            orphans += goes
            left += kept
        for machine in self._strays:
            goes, kept = self._stray(machine)
            orphans += goes
            left += kept
        return Findings(tuple(orphans), tuple(left))

    def _in_cluster(self, cluster: ClusterInfo) -> tuple[list[Found], list[Found]]:
        ours = [pool for pool in cluster.pools if is_of(pool.labels, self._fleet.name) and job_of(pool.labels)]
        verdicts = [(self._found(pool, self._end_of(pool)), self._stays(cluster, pool)) for pool in ours]
        goes = [found for found, stays in verdicts if not stays]
        kept = [_because(found, stays) for found, stays in verdicts if stays and not self._is_owned(found.job)]
        if not self._is_in_question(cluster):
            return goes, kept
        stays = self._cluster_stays(cluster, [found for found, stays in verdicts if stays])
        machines = tuple(machine for pool in cluster.pools for machine in self._machines.get(pool.ref, ()))
        whole = Found(cluster, self._end_of_cluster(cluster), machines=machines)
        if stays:
            return goes, [*kept, _because(whole, stays)]
        return [whole], []

    # Pools and machines

    def _is_owned(self, job: JobName | None) -> bool:
        return job is not None and self._claims.get(job) is Claim.LIVE

    def _end_of(self, resource: PoolInfo | MachineInfo) -> str:
        """Why the resource has no live owner; empty if it has one, or may have one."""
        job = job_of(resource.labels)
        match self._claims.get(job) if job is not None else None:
            case None:
                return unknown(job)
            case Claim.ENDED | Claim.ENDING:
                return has_ended(job)
            case Claim.LIVE | Claim.UNREADABLE:
                return ""
            case never:
                assert_never(never)

    def _stays(self, cluster: ClusterInfo, pool: PoolInfo) -> str:
        """Why the pool stays; empty if it is removed."""
        if self._names[cluster.name] > 1:
            return two_clusters(cluster.name)
        if _is_going(pool):
            return DELETING
        return self._answered_for(pool, self._since(pool))

    def _answered_for(self, resource: PoolInfo | MachineInfo, since: float | None) -> str:
        job = job_of(resource.labels)
        claim = self._claims.get(job) if job is not None else None
        match claim:
            case Claim.LIVE:
                return f"job {job} lives"
            case Claim.UNREADABLE:
                return UNREADABLE
            case Claim.ENDING:
                return removed_by_master(job)
            case Claim.ENDED:
                return self._may_be_elsewhere(resource)
            case None:
                return self._may_be_new(resource, since) or self._may_be_elsewhere(resource)
            case _:
                assert_never(claim)

    def _may_be_new(self, resource: PoolInfo | MachineInfo, since: float | None) -> str:
        if since is None:
            half_made = isinstance(resource, PoolInfo) and resource.status is PoolStatus.PROVISIONING
            return "it is being created, and its creation time is not known" if half_made else ""
        age_s = self._now - since
        if age_s >= YOUNG_S:
            return ""
        return too_young(age_s)

    def _may_be_elsewhere(self, resource: PoolInfo | MachineInfo) -> str:
        return "" if self._bus is None or is_of_bus(resource.labels, self._bus) else ELSEWHERE

    def _since(self, pool: PoolInfo) -> float | None:
        starts = [machine.started_at for machine in self._machines.get(pool.ref, ())]
        asked = asked_at(pool.labels)
        return asked if asked is not None else min(starts, default=None)

    def _found(self, pool: PoolInfo, why: str) -> Found:
        machines = tuple(self._machines.get(pool.ref, ()))
        return Found(pool, why, job_of(pool.labels), self._since(pool), machines)

    def _stray(self, machine: MachineInfo) -> tuple[list[Found], list[Found]]:
        job = job_of(machine.labels)
        if not is_of(machine.labels, self._fleet.name) or job is None or self._is_owned(job):
            return [], []
        why = in_no_pool(self._end_of(machine))
        found = Found(machine, why, job, machine.started_at, (machine,))
        stays = self._answered_for(machine, machine.started_at)
        return ([], [_because(found, stays)]) if stays else ([found], [])

    # Clusters

    def _is_in_question(self, cluster: ClusterInfo) -> bool:
        is_named = cluster.name in self._fleet.clusters
        return is_of(cluster.labels, self._fleet.name) and (self._clusters is Clusters.ALL or not is_named)

    def _end_of_cluster(self, cluster: ClusterInfo) -> str:
        if cluster.name in self._fleet.clusters:
            return f"all clusters of fleet {self._fleet.name} are to go"
        failed = "its creation failed, and " if cluster.status is ClusterStatus.ERROR else ""
        return f"{failed}it is not in the fleet file"

    def _cluster_stays(self, cluster: ClusterInfo, kept: Sequence[Found]) -> str:
        if self._names[cluster.name] > 1:
            return two_clusters(cluster.name)
        match cluster.status:
            case ClusterStatus.STOPPING:
                return DELETING
            case ClusterStatus.PROVISIONING:
                return "it is being created: a master with a newer fleet file may want it"
            case ClusterStatus.RUNNING if self._clusters is Clusters.FAILED:
                return "it runs, so only a person may remove it"
            case ClusterStatus.RUNNING | ClusterStatus.ERROR:
                pass
            case _:
                assert_never(cluster.status)
        foreign = [pool for pool in cluster.pools if not is_of(pool.labels, self._fleet.name)]
        if foreign:
            return has_foreign_pool(foreign[0].ref.pool)
        going = [found for found in kept if isinstance(found.resource, PoolInfo) and self._blocks(found.resource)]
        if going:
            return has_pool(going[0].job)
        return ""

    def _blocks(self, pool: PoolInfo) -> bool:
        """Report whether the pool keeps its cluster: unless it is being deleted and its job cannot live."""
        job = job_of(pool.labels)
        may_live = job is not None and self._claims.get(job) in (Claim.LIVE, Claim.UNREADABLE)
        return may_live or not _is_going(pool)


def _is_going(resource: Resource) -> bool:
    match resource:
        case PoolInfo():
            return resource.status is PoolStatus.STOPPING
        case ClusterInfo():
            return resource.status is ClusterStatus.STOPPING
        case MachineInfo():
            return False
        case _:
            assert_never(resource)


def _because(found: Found, stays: str) -> Found:
    return Found(found.resource, stays, found.job, found.since, found.machines)
