"""Nodes that Compute refuses: they are found by the errors of their instance group and removed by name.

GKE reports a stockout when its operation ends, after up to 35 minutes. The group shows the refusal within seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from controlplane.clouds.gke.classify import OperationReport, group_problem
from controlplane.clouds.gke.compute import ComputeClient
from controlplane.clouds.gke.requests import InstanceGroup, PoolSeen
from controlplane.clouds.interface import PoolRef, RecentShortage
from controlplane.clouds.outcomes import Busy, Done, Outcome, PartlyDone, QuotaExceeded, Refused, StockedOut

Problem = StockedOut | QuotaExceeded | Refused


class PoolSource(Protocol):
    async def pool(self, location: str, pool: PoolRef) -> PoolSeen:
        """Raises `CallFailed`."""


class Refusals:
    """Every method raises `CallFailed`."""

    def __init__(self, source: PoolSource, compute: ComputeClient, project: str) -> None:
        self._source = source
        self._compute = compute
        self._project = project

    def watch(self, location: str, pool: PoolRef) -> "PoolWatch":
        return PoolWatch(self, location, pool)

    async def groups(self, location: str, pool: PoolRef) -> Sequence[InstanceGroup]:
        """The instance groups of a pool; empty if the pool is so new that it has none."""
        return (await self._source.pool(location, pool)).groups

    async def recent(self, groups: Sequence[InstanceGroup]) -> RecentShortage | None:
        """The newest refusal of an instance that is still missing."""
        found = [refused for group in groups for refused in (await self.refused(group)).values()]
        if not found:
            return None
        age_s, problem = min(found, key=lambda each: each[0])
        return RecentShortage(problem, age_s)

    async def refused(self, group: InstanceGroup, since: float = 0.0) -> dict[str, tuple[float, Problem]]:
        """Missing instances that were refused after `since` (Unix seconds at Google), each with its age and reason."""
        errors, now = await self._compute.errors(group)
        found: dict[str, tuple[float, Problem]] = {}
        for error in sorted(errors, key=lambda error: error.at):
            problem = group_problem(error.code, error.message, self._project) if error.at >= since else None
            if problem is not None:
                found[error.instance] = (max(0.0, now - error.at), problem)
        pending = await self._compute.instances(group, pending_only=True) if found else ()
        return {name: refusal for name, refusal in found.items() if name in pending}

    async def remove(self, group: InstanceGroup, names: Sequence[str]) -> int:
        """Delete these instances by name and return the group's new target."""
        target = (await self._compute.group(group)).target or 0
        await self._compute.delete_instances(group, names)
        return max(0, target - len(names))

    async def all_pending(self, group: InstanceGroup) -> set[str]:
        return await self._compute.instances(group, pending_only=True)

    async def lower(self, location: str, pool: PoolRef, size: int, busy: Busy) -> Outcome:
        """Shrink a pool that GKE is busy with, if its surplus instances have no machine."""
        groups = await self.groups(location, pool)
        if len(groups) != 1:
            return busy
        surplus = ((await self._compute.group(groups[0])).target or 0) - size
        pending = sorted(await self.all_pending(groups[0]))
        if not 0 < surplus <= len(pending):
            return busy
        await self._compute.delete_instances(groups[0], pending[:surplus])
        return Done()

    async def empty(self, location: str, pool: PoolRef, busy: Busy) -> Outcome:
        """Delete all machines of a pool that GKE is too busy to delete, so that they cost nothing meanwhile."""
        for group in await self.groups(location, pool):
            names = sorted(await self._compute.instances(group))
            await self._compute.delete_instances(group, names)
        return busy


class PoolWatch:
    """A check of the groups of one pool while an operation enlarges it."""

    def __init__(self, refusals: Refusals, location: str, pool: PoolRef) -> None:
        self._refusals = refusals
        self._location = location
        self._pool = pool
        self._groups: Sequence[InstanceGroup] = ()
        self._last: set[str] = set()

    async def __call__(self, report: OperationReport) -> PartlyDone | None:
        """Remove the instances that were refused since the operation began, once no more refusals come."""
        if report.started_at is None:
            return None
        self._groups = self._groups or await self._refusals.groups(self._location, self._pool)
        refused = {group: await self._refusals.refused(group, report.started_at) for group in self._groups}
        names = {name for found in refused.values() for name in found}
        is_settled, self._last = names == self._last, names
        if not names or not (is_settled or await self._is_all(refused)):
            return None
        sizes = [await self._refusals.remove(group, sorted(found)) for group, found in refused.items()]
        problems = [problem for found in refused.values() for _, problem in found.values()]
        return PartlyDone(sum(sizes), min(problems, key=_rank))

    async def _is_all(self, refused: Mapping[InstanceGroup, Mapping[str, object]]) -> bool:
        """Check that no other instance is pending, so that no more can be refused."""
        for group, found in refused.items():
            if await self._refusals.all_pending(group) - found.keys():
                return False
        return True


def _rank(problem: Problem) -> int:
    """The order of several refusals: refusals that need a person come first."""
    return (Refused, QuotaExceeded, StockedOut).index(type(problem))
