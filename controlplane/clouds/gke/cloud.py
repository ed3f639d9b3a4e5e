"""GKE as a `Cloud`. It remembers the locations of its clusters, so that a resize needs one call only."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from controlplane.clouds.gke import requests
from controlplane.clouds.gke.classify import call_outcome, creation_outcome, read_problem
from controlplane.clouds.gke.compute import ComputeClient
from controlplane.clouds.gke.failures import CallFailed
from controlplane.clouds.gke.market import MarketClient
from controlplane.clouds.gke.operations import Operations, Watch
from controlplane.clouds.gke.quotas import needs, quotas_page
from controlplane.clouds.gke.read_retries import retry_read
from controlplane.clouds.gke.refusals import Refusals
from controlplane.clouds.gke.settings import GkeConfig, GkeSettings
from controlplane.clouds.gke.tokens import AccessTokens, FetchedToken
from controlplane.clouds.interface import (
    Cloud,
    ClusterInfo,
    ClusterPlan,
    KubernetesAccess,
    MachineInfo,
    MarketPrice,
    Needs,
    PoolInfo,
    PoolPlan,
    PoolRef,
    Quota,
    RecentShortage,
)
from controlplane.clouds.outcomes import Done, NotFound, Outcome, PartlyDone, Refused, Unreachable
from messages.ids import ClusterName
from messages.labels import FLEET_LABEL, JOB_LABEL
from runtime.errors import Temporary, UserError

if TYPE_CHECKING:
    from controlplane.clouds.gke.client import GkeClient

T = TypeVar("T")

POOLS_AT_ONCE = 8
DEFAULTS = GkeConfig()


class GkeCloud(Cloud):
    """A `Cloud` on GKE; create it with `open`."""

    def __init__(
        self,
        settings: GkeSettings,
        config: GkeConfig,
        tokens: AccessTokens,
        client: "GkeClient",
        compute: ComputeClient,
    ) -> None:
        self._settings = settings
        self._config = config
        self._names = requests.Names(settings.project)
        self._tokens = tokens
        self._client = client
        self._compute = compute
        self._market = MarketClient(settings)
        self._operations = Operations(client, settings)
        self._refusals = Refusals(client, compute, settings.project)
        self._locations: dict[ClusterName, str] = {}
        self._targets: dict[PoolRef, int] = {}
        """The targets that the newest listing or operation showed; a pool with an unknown target is absent."""

    @classmethod
    async def open(cls, settings: GkeSettings, config: GkeConfig = DEFAULTS) -> "GkeCloud":
        """Create the cloud without a call to Google. The first call loads the credentials."""
        make_client, tokens = await asyncio.to_thread(_load, settings)
        return cls(settings, config, tokens, make_client(settings, tokens), ComputeClient(settings, tokens))

    async def clusters(self) -> Sequence[ClusterInfo] | Unreachable | Refused:
        return await self._read(self._clusters)

    async def create_cluster_with_node_pool(self, plan: ClusterPlan) -> Outcome:
        self._locations[plan.name] = plan.location
        request = requests.create_cluster(self._names, plan, self._config, time.time())
        return await self._operations.run(
            plan.name,
            None,
            f"creation of the cluster {plan.name}",
            lambda: self._client.create_cluster(request),
            creation_outcome,
        )

    async def delete_cluster(self, cluster: ClusterName) -> Outcome:
        location = await self._location(cluster)
        if not isinstance(location, str):
            return location
        what = f"deletion of the cluster {cluster}"
        return await self._operations.run(cluster, None, what, lambda: self._client.delete_cluster(location, cluster))

    async def protect_from_upgrades(self, cluster: ClusterName, until: float) -> Outcome:
        location = await self._location(cluster)
        if not isinstance(location, str):
            return location
        what = f"maintenance exclusion of the cluster {cluster}"
        return await self._operations.run(
            cluster, None, what, lambda: self._client.exclude_upgrades(location, cluster, time.time(), until)
        )

    async def create_pool(self, cluster: ClusterName, plan: PoolPlan) -> Outcome:
        location = await self._location(cluster)
        if not isinstance(location, str):
            return location
        request = requests.create_pool(self._names, location, cluster, plan, self._config.nodes)
        what = f"creation of the pool {plan.name} of {cluster}"
        pool = PoolRef(cluster, plan.name)
        outcome = await self._operations.run(
            cluster,
            plan.name,
            what,
            lambda: self._client.create_pool(request),
            within_s=self._settings.nodes_s,
            watch=self._watch(location, pool, plan.size),
        )
        return self._note_target(pool, plan.size, outcome)

    async def resize_pool(self, pool: PoolRef, size: int) -> Outcome:
        location = await self._location(pool.cluster)
        if not isinstance(location, str):
            return location
        request = requests.resize_pool(self._names, location, pool, size)
        what = f"resize of the pool {pool.pool} of {pool.cluster} to {size}"
        outcome = await self._operations.run(
            pool.cluster,
            pool.pool,
            what,
            lambda: self._client.resize_pool(request),
            within_s=self._settings.nodes_s,
            watch=self._watch(location, pool, size),
            when_busy=lambda busy: self._refusals.lower(location, pool, size, busy),
        )
        return self._note_target(pool, size, outcome)

    async def remove_nodes(self, pool: PoolRef, nodes: Sequence[str]) -> Outcome:
        location = await self._location(pool.cluster)
        if not isinstance(location, str):
            return location

        async def remove() -> Outcome:
            seen = await retry_read(lambda: self._client.pool(location, pool), self._settings.read_s)
            for group in seen.groups:
                await self._compute.delete_instances(group, nodes)
            return Done() if seen.groups else NotFound(f"The pool {pool.pool} of {pool.cluster} has no machines yet")

        if not nodes:
            return Done()
        what = f"removal of {len(nodes)} nodes of the pool {pool.pool} of {pool.cluster}"
        self._targets.pop(pool, None)
        return await self._operations.do(pool.cluster, pool.pool, what, remove)

    async def delete_pool(self, pool: PoolRef) -> Outcome:
        location = await self._location(pool.cluster)
        if not isinstance(location, str):
            return location
        what = f"deletion of the pool {pool.pool} of {pool.cluster}"
        return await self._operations.run(
            pool.cluster,
            pool.pool,
            what,
            lambda: self._client.delete_pool(location, pool),
            when_busy=lambda busy: self._refusals.empty(location, pool, busy),
        )

    async def quotas(self, scope: str) -> Sequence[Quota] | Unreachable | Refused:
        return await self._read(lambda: self._compute.quotas(scope))

    def needs(self, plan: PoolPlan, quotas: Iterable[Quota]) -> Needs:
        return needs(plan, quotas, self._config)

    @property
    def quotas_page(self) -> str:
        return quotas_page(self._settings.project)

    async def machines(self) -> Sequence[MachineInfo] | Unreachable | Refused:
        return await self._read(lambda: self._compute.machines(JOB_LABEL))

    async def market(self) -> Sequence[MarketPrice] | Unreachable | Refused:
        return await self._read(self._market.prices)

    async def kubernetes_access(self, cluster: ClusterName) -> KubernetesAccess | Unreachable | Refused:
        location = await self._location(cluster)
        match location:
            case str():
                access = await self._read(lambda: self._client.kubernetes_access(location, cluster))
                return access if access is not None else Unreachable(f"The cluster {cluster} has no endpoint yet")
            case Unreachable() | Refused():
                return location
            case NotFound():
                return Refused(f"There is no cluster {cluster} in the project {self._settings.project}")

    async def access_token(self, cluster: ClusterName) -> str:
        """The access token, which is the same for all clusters."""
        return (await self._token()).text

    async def api_headers(self) -> Mapping[str, str]:
        """HTTP headers for another API of Google: the token and the project that pays. Raises like `access_token`."""
        return (await self._token()).headers

    async def _token(self) -> FetchedToken:
        try:
            return await self._tokens.get()
        except CallFailed as failed:
            outcome = call_outcome(failed, self._settings.project)
            if isinstance(outcome, Refused):
                raise UserError(outcome.detail, outcome.hint) from None
            raise Temporary(failed.message) from None

    async def close(self) -> None:
        await self._tokens.close()
        await self._client.close()
        await self._compute.close()
        await self._market.close()

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T | Unreachable | Refused:
        try:
            return await retry_read(read, self._settings.read_s)
        except CallFailed as failed:
            return read_problem(failed, self._settings.project)

    async def _location(self, cluster: ClusterName) -> str | NotFound | Unreachable | Refused:
        if cluster not in self._locations:
            seen = await self._read(self._client.clusters)
            if isinstance(seen, Unreachable | Refused):
                return seen
            self._learn_locations(seen)
        location = self._locations.get(cluster)
        return location or NotFound(f"There is no cluster {cluster} in the project {self._settings.project}")

    async def _clusters(self) -> Sequence[ClusterInfo]:
        seen = await self._client.clusters()
        self._learn_locations(seen)
        ours = [pool for cluster in seen for pool in cluster.pools if JOB_LABEL in pool.info.labels]
        known = await self._as_compute_knows_them(ours)
        self._targets = {ref: pool.size for ref, pool in known.items()}
        return [
            replace(cluster.info, pools=tuple(known.get(pool.ref, pool) for pool in cluster.info.pools))
            for cluster in seen
        ]

    def _learn_locations(self, seen: Sequence[requests.ClusterSeen]) -> None:
        """Store the location of each cluster. If a project has a name twice, the fleet's cluster wins."""
        for cluster in sorted(seen, key=lambda each: FLEET_LABEL in each.info.labels):
            self._locations[cluster.info.name] = cluster.info.location

    async def _as_compute_knows_them(self, pools: Sequence[requests.PoolSeen]) -> dict[PoolRef, PoolInfo]:
        """The pools with the targets of their instance groups and why nodes are missing. Raises `CallFailed`."""
        places = asyncio.Semaphore(POOLS_AT_ONCE)

        async def look_at(pool: requests.PoolSeen) -> PoolInfo | CallFailed:
            try:
                async with places:
                    return await self._with_groups(pool)
            except CallFailed as failed:
                return failed

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(look_at(pool), name=f"gke/pool/{pool.info.ref.pool}") for pool in pools]
        found: dict[PoolRef, PoolInfo] = {}
        for task in asked:
            answer = task.result()
            if isinstance(answer, CallFailed):
                raise answer
            found[answer.ref] = answer
        return found

    async def _with_groups(self, pool: requests.PoolSeen) -> PoolInfo:
        states = [await self._compute.group(group) for group in pool.groups]
        targets = [state.target for state in states if state.target is not None]
        short = [group for group, state in zip(pool.groups, states, strict=True) if state.creating]
        return replace(
            pool.info,
            size=sum(targets) if targets else pool.info.size,
            shortage=await self._shortage(short) if short else None,
        )

    async def _shortage(self, groups: Sequence[requests.InstanceGroup]) -> RecentShortage | None:
        """The newest refusal of a node; None if it cannot be read, so that the listing still succeeds."""
        try:
            return await self._refusals.recent(groups)
        except CallFailed:
            return None

    def _watch(self, location: str, pool: PoolRef, size: int) -> Watch | None:
        """A watch for refused nodes if the pool grows or its target is unknown."""
        return self._refusals.watch(location, pool) if size > self._targets.get(pool, 0) else None

    def _note_target(self, pool: PoolRef, size: int, outcome: Outcome) -> Outcome:
        """Store the pool's target. A request that was refused, or whose result is unknown, makes it unknown."""
        match outcome:
            case Done():
                self._targets[pool] = size
            case PartlyDone(reached, _):
                self._targets[pool] = reached
            case _:
                self._targets.pop(pool, None)
        return outcome


def load_client() -> "type[GkeClient]":
    """Import the client; call it in a thread, because the import takes most of a second.

    grpc's support for forks is disabled: it writes to standard error for each child process, and a child that
    executes another program at once does not need it.
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from controlplane.clouds.gke.client import GkeClient

    return GkeClient


def _load(settings: GkeSettings) -> "tuple[type[GkeClient], AccessTokens]":
    client = load_client()
    from controlplane.clouds.gke.credentials import token_fetcher

    return client, AccessTokens(token_fetcher(settings.credentials_file, settings.project, simulated=settings.insecure))
