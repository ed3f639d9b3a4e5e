"""The clusters of a region, and the commands of the cloud for them."""

import asyncio

from runtime.logs import logger
from simulator.kubernetes.gate import Cut
from simulator.metadata_server import MAINTENANCE
from simulator.region.cluster import Cluster, NoSuch, Shared
from simulator.region.ports import Ports
from simulator.region.settings import (
    ClusterRequest,
    ClusterView,
    CutRequest,
    MaintenanceEvent,
    NodeRequest,
    NodeView,
    PreemptRequest,
    RolesRequest,
    SilenceRequest,
)


class Clusters:
    def __init__(self, shared: Shared, ports: Ports, tasks: asyncio.TaskGroup) -> None:
        self._shared = shared
        self._ports = ports
        self._tasks = tasks
        self._clusters: dict[str, Cluster] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._log = logger(region=shared.settings.region)

    @property
    def names(self) -> list[str]:
        return list(self._clusters)

    def get(self, name: str) -> Cluster:
        if name not in self._clusters:
            raise NoSuch(f"region {self._shared.settings.region} has no cluster {name}")
        return self._clusters[name]

    async def put(self, name: str, request: ClusterRequest) -> ClusterView:
        while name in self._clusters and self._clusters[name].is_stopping:
            await asyncio.wait({self._running[name]})
        if name not in self._clusters:
            cluster = Cluster(name, f"{self._ports.inner_url}/k8s/{name}", request, self._shared)
            self._clusters[name] = cluster
            self._shared.metadata.hidden.set("project/project-id", request.project)
            self._running[name] = self._tasks.create_task(self._run(cluster), name=f"cluster/{name}")
            self._log.info("cluster_created", cluster=name)
        cluster = self._clusters[name]
        await cluster.started()
        endpoint, address = f"{self._ports.url}/k8s/{name}", self._ports.address_of(name)
        return ClusterView(endpoint=endpoint, ca="", address=address, uid=cluster.uid)

    async def delete(self, name: str) -> None:
        """Deletes a cluster; returns when its last process has ended."""
        cluster = self._clusters.get(name)
        if cluster is not None:
            cluster.stop()
            await asyncio.wait({self._running[name]})

    async def delete_all(self) -> None:
        for cluster in self._clusters.values():
            cluster.stop()
        if self._running:
            await asyncio.wait(self._running.values())

    async def put_node(self, cluster: str, name: str, request: NodeRequest) -> NodeView:
        found = self.get(cluster)
        return found.view(await found.put_node(name, request))

    def drain(self, cluster: str, name: str) -> bool:
        """Drains a node; True if its pods have left."""
        return self._with_node(cluster, name).drain(name)

    async def silence(self, cluster: str, name: str, request: SilenceRequest) -> None:
        await self._with_node(cluster, name).silence(name, silent=request.silent)

    def preempt(self, cluster: str, name: str, request: PreemptRequest) -> NodeView:
        found = self._with_node(cluster, name)
        found.preempt(name, request.notice_s, delete_node=request.delete_node)
        return found.view(found.nodes[name])

    def announce_maintenance(self, cluster: str, name: str, event: MaintenanceEvent) -> NodeView:
        """Sets the maintenance event in the node's metadata; the cloud decides later what happens to the machine."""
        found = self._with_node(cluster, name)
        found.nodes[name].metadata.set(MAINTENANCE, event)
        return found.view(found.nodes[name])

    async def delete_node(self, cluster: str, name: str, *, grace_s: float | None = None, wait: bool = True) -> bool:
        """Removes a node; True if it is gone. Without `wait` it may still be ending."""
        node = self.get(cluster).remove_node(name, grace_s)
        if node is not None and wait:
            await node.ended.wait()
        return node is None or node.ended.is_set()

    def nodes(self, cluster: str) -> list[NodeView]:
        found = self.get(cluster)
        return [found.view(node) for node in found.nodes.values()]

    def cut(self, request: CutRequest) -> None:
        chosen = self._clusters.values() if request.cluster is None else [self.get(request.cluster)]
        for cluster in chosen:
            cluster.gate.set(request.how if request.cut else Cut.NONE)
        self._log.info("cut", cut=request.cut, cluster=request.cluster or "all", how=str(request.how))

    def set_roles(self, request: RolesRequest) -> None:
        self._shared.accounts.set(request.account, granted=request.granted)
        self._log.info("roles_set", account=request.account, granted=request.granted)

    def compact(self, cluster: str, *, expire_watches: bool = False) -> None:
        """Makes a cluster's API forget all changes so far: older versions are gone."""
        self.get(cluster).server.store.compact(expire_watches=expire_watches)

    def _with_node(self, cluster: str, name: str) -> Cluster:
        found = self.get(cluster)
        if name not in found.nodes:
            raise NoSuch(f"cluster {cluster} has no node {name}")
        return found

    async def _run(self, cluster: Cluster) -> None:
        await self._ports.open(cluster.name)
        try:
            await cluster.run()
        finally:
            del self._clusters[cluster.name], self._running[cluster.name]
            await self._ports.close(cluster.name)
            self._log.info("cluster_deleted", cluster=cluster.name)
