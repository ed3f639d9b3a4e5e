"""One cluster of a region: the API server, its controllers, its nodes. Its tasks end with it."""

import asyncio
import time
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path

from runtime.clock import Clock
from runtime.errors import TradewindError
from runtime.logs import logger
from simulator.accounts import Accounts
from simulator.kubelet.addresses import Addresses
from simulator.kubelet.facts import NodeFacts, RunOptions
from simulator.kubelet.kubelet import Kubelet
from simulator.kubelet.logs import LogFolder
from simulator.kubelet.pod import Node
from simulator.kubelet.processes import Sweeper
from simulator.kubernetes import identities
from simulator.kubernetes.controllers import nodes as node_controller
from simulator.kubernetes.controllers.actions import Delete, perform
from simulator.kubernetes.controllers.loop import Controllers
from simulator.kubernetes.events import record_event
from simulator.kubernetes.gate import Gate
from simulator.kubernetes.history import Change
from simulator.kubernetes.http import ClusterHttp, HttpOptions
from simulator.kubernetes.identities import Claim, networks
from simulator.kubernetes.objects import (
    Key,
    Obj,
    is_daemon,
    is_deleting,
    is_finished,
    key_of,
    meta,
    name_of,
    spec_of,
    uid_of,
)
from simulator.kubernetes.resources import NODES, PODS, Resource
from simulator.kubernetes.server import ApiServer, ServerOptions
from simulator.metadata_server import PREEMPTED, MetadataServers
from simulator.region.node import NodeState, RegionNode, cordon, new_metadata, node_object, set_ready, windows
from simulator.region.settings import ClusterRequest, NodeRequest, NodeView, RegionSettings


class NoSuch(TradewindError):
    """The cluster or node does not exist."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the clusters of a region share."""

    settings: RegionSettings
    incarnation: str
    clock: Clock
    folder: Path
    metadata: MetadataServers
    addresses: Addresses
    sweeper: Sweeper
    accounts: Accounts


class Cluster:
    def __init__(self, name: str, endpoint: str, request: ClusterRequest, shared: Shared) -> None:
        self.name = name
        self.request = request
        self.gate = Gate()
        self.uid = str(uuid.uuid4())
        options = _server_options(shared.settings, request)
        # Versions continue to rise after a restart of the region, so versions that clients remember are too old.
        self.server = ApiServer(shared.clock, options, first_version=int(time.time() * 1000))
        self.logs = LogFolder(shared.folder / "logs" / name, self.server.store)
        self.http = ClusterHttp(
            name, self.server, self.gate, self.logs, shared.clock, _http_options(shared.settings, request)
        )
        self.nodes: dict[str, RegionNode] = {}
        self._shared = shared
        self._token_s = request.token_seconds or shared.settings.token_s
        self._run_options = _run_options(name, endpoint, shared, self._token_s)
        self._controllers = Controllers(name, self.server, shared.clock) if request.controllers else None
        self._tasks: asyncio.TaskGroup | None = None
        self._placing = asyncio.Lock()
        self._started = asyncio.Event()
        self._stopping = asyncio.Event()
        self._log = logger(cluster=name)
        self.server.store.listeners.append(self._on_change)

    async def run(self) -> None:
        """Runs until it is stopped; then none of its nodes and processes is left."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            controlling = None
            if self._controllers is not None:
                controlling = tasks.create_task(self._controllers.run(), name=f"controllers/{self.name}")
            self._started.set()
            await self._stopping.wait()
            async with self._placing:
                ending = tuple(self.nodes.values())
            for node in ending:
                self._end(node, self._shared.settings.stop_grace_s)
            for node in ending:
                await node.ended.wait()
            if controlling is not None:
                controlling.cancel()

    async def started(self) -> None:
        await self._started.wait()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        self._stopping.set()

    async def put_node(self, name: str, request: NodeRequest) -> RegionNode:
        """Adds a node. The same machine again changes nothing; another machine replaces the one of that name."""
        async with self._placing:
            if self.is_stopping:
                raise NoSuch(f"cluster {self.name} is being deleted")
            known = self.nodes.get(name)
            if known is not None:
                if known.request.instance_id == request.instance_id and known.state is not NodeState.REMOVING:
                    return known
                self._end(known, 0.0)
                await known.ended.wait()
            node = await self._new_node(name, request)
        self._log.info("node_registered", node=name, instance=request.instance_id)
        return node

    def preempt(self, name: str, notice_s: float, *, delete_node: bool) -> None:
        """Preempts a node. With notice its metadata reports it and pods end in order; without, it is lost at once."""
        node = self.nodes[name]
        if node.state is not NodeState.READY:
            return
        node.state = NodeState.PREEMPTED
        self._log.info("node_preempted", node=name, notice_s=notice_s)
        node.ending = self._task(self._preempted(node, notice_s, delete_node), f"preempt/{name}")

    def drain(self, name: str) -> bool:
        """Cordons the node and evicts all pods but DaemonSets'. True if they have left, or the node hangs."""
        self.server.store.modify(NODES, Key("", name), cordon)
        staying = [
            pod
            for pod in self.server.store.all(PODS)
            if spec_of(pod).get("nodeName") == name and not is_finished(pod) and not is_daemon(pod)
        ]
        for pod in staying:
            if not is_deleting(pod):
                perform(self.server, Delete(PODS, key_of(pod), uid_of(pod)))
        return not staying or self.nodes[name].silent

    async def silence(self, name: str, *, silent: bool) -> None:
        """Makes the machine hang with all its programs, or continue."""
        node = self.nodes[name]
        if node.state is not NodeState.READY or node.silent is silent:
            return
        node.silent = silent
        self._log.info("node_silenced", node=name, silent=silent)
        if silent:
            await node.kubelet.freeze()
            self._task(self._missed(node), f"missed/{name}")
        else:
            await node.kubelet.thaw()
            set_ready(self.server, name, "True", "KubeletReady", "kubelet is posting ready status")

    async def _missed(self, node: RegionNode) -> None:
        await asyncio.sleep(self._shared.settings.node_monitor_s)
        if node.silent and self.nodes.get(node.name) is node:
            set_ready(self.server, node.name, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")

    def remove_node(self, name: str, grace_s: float | None) -> RegionNode | None:
        """Starts the removal of a node; returns the node, if it exists."""
        node = self.nodes.get(name)
        if node is not None and node.state is not NodeState.REMOVING:
            self._log.info("node_removed", node=name)
            self._end(node, node.request.shutdown_grace_s if grace_s is None else grace_s)
        return node

    def view(self, node: RegionNode) -> NodeView:
        return NodeView(
            name=node.name,
            uid=node.uid,
            instance_id=node.request.instance_id,
            zone=node.request.zone,
            state=node.state,
            metadata_host=node.metadata_host,
            pods=node.kubelet.pods,
        )

    async def _new_node(self, name: str, request: NodeRequest) -> RegionNode:
        shared = self._shared
        metadata = new_metadata(name, self.request.project, request)
        metadata_host = await shared.metadata.add(metadata)
        host_ip = shared.addresses.take()
        folder = shared.folder / "n" / request.instance_id[-12:] / name
        hidden_host, account = shared.metadata.hidden_host, request.service_account
        facts = NodeFacts(name, host_ip, folder, metadata_host, hidden_host, account)
        kubelet = Kubelet(
            Node(
                facts,
                self._run_options,
                self.server,
                shared.clock,
                self.logs,
                self._new_token,
                shared.sweeper,
                shared.accounts,
            ),
            shared.addresses,
        )
        body = node_object(name, shared.settings.region, host_ip, request, self.server.store.now)
        if self.server.store.find(NODES, Key("", name)) is not None:
            self.server.store.remove(NODES, Key("", name))
        node = RegionNode(name, uid_of(self.server.create(NODES, body)), request, kubelet, metadata, metadata_host)
        self.nodes[name] = node
        node.running = self._task(kubelet.run(), f"kubelet/{name}")
        return node

    async def _preempted(self, node: RegionNode, notice_s: float, delete_node: bool) -> None:
        loop = asyncio.get_running_loop()
        if notice_s > 0:
            end_s = loop.time() + notice_s
            node.metadata.set(PREEMPTED, "TRUE")
            self._say_shutting_down(node)
            await node.kubelet.shut_down(*windows(notice_s))
            await asyncio.sleep(max(0.0, end_s - loop.time()))
        node.state = NodeState.LOST
        await self._machine_gone(node)
        await asyncio.sleep(self._shared.settings.node_monitor_s)
        set_ready(self.server, node.name, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        if delete_node:
            self._forget(node)

    def _end(self, node: RegionNode, grace_s: float) -> None:
        """Ends a node: cancels what it does, gives its pods the grace period, then removes everything."""
        was_lost = node.state is NodeState.LOST or node.silent
        node.state = NodeState.REMOVING
        before = node.ending
        if before is not None:
            before.cancel()
        node.ending = self._task(self._ended(node, 0.0 if was_lost else grace_s, before), f"remove/{node.name}")

    async def _ended(self, node: RegionNode, grace_s: float, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait({before})
        if grace_s > 0:
            self._say_shutting_down(node)
            await node.kubelet.shut_down(*windows(grace_s))
        await self._machine_gone(node)
        self._forget(node)

    async def _machine_gone(self, node: RegionNode) -> None:
        await node.kubelet.die()
        if node.running is not None:
            await asyncio.wait({node.running})
        await self._shared.metadata.remove(node.metadata_host)

    def _forget(self, node: RegionNode) -> None:
        """Removes the node's object and its pods."""
        store = self.server.store
        current = store.find(NODES, Key("", node.name))
        if current is not None and uid_of(current) == node.uid:
            store.remove(NODES, Key("", node.name))
        left = [pod for pod in store.all(PODS) if spec_of(pod).get("nodeName") == node.name]
        for action in node_controller.collect_orphans(left, [], self._shared.clock.wall_s()):
            perform(self.server, action)
        self._shared.addresses.give_back(node.kubelet.node.facts.host_ip)
        if self.nodes.get(node.name) is node:
            del self.nodes[node.name]
        node.ended.set()

    def _say_shutting_down(self, node: RegionNode) -> None:
        set_ready(self.server, node.name, "False", "KubeletNotReady", "node is shutting down")
        current = self.server.store.find(NODES, Key("", node.name))
        if current is not None:
            record_event(self.server, current, "NodeShutdown", "node is shutting down", source="kubelet")

    def _new_token(self, account: Obj) -> str:
        expires_s = self._shared.clock.wall_s() + self._token_s
        claim = Claim(meta(account)["namespace"], name_of(account), uid_of(account), expires_s)
        return identities.issue_for_account(identities.account_secret(self._shared.settings.secret, self.name), claim)

    def _on_change(self, resource: Resource, change: Change) -> None:
        if resource.id != PODS.id:
            return
        node = self.nodes.get(spec_of(change.object).get("nodeName") or "")
        if node is not None:
            node.kubelet.on_change(change)

    def _task(self, work: Coroutine[object, object, None], name: str) -> "asyncio.Task[None]":
        assert self._tasks is not None  # nodes change only while the cluster runs
        return self._tasks.create_task(work, name=name)


def _server_options(settings: RegionSettings, request: ClusterRequest) -> ServerOptions:
    return ServerOptions(
        makes_accounts=request.controllers,
        toleration_s=settings.toleration_s,
        history_limit=settings.history_limit,
    )


def _http_options(settings: RegionSettings, request: ClusterRequest) -> HttpOptions:
    return HttpOptions(
        settings.secret,
        bookmark_s=settings.bookmark_s,
        gone_as_status=settings.gone_as_status,
        enforces_rbac=settings.enforce_rbac,
        authorized=None if request.authorized_networks is None else networks(request.authorized_networks),
    )


def _run_options(cluster: str, endpoint: str, shared: Shared, token_s: float) -> RunOptions:
    settings = shared.settings
    return RunOptions(
        cluster=cluster,
        endpoint=endpoint,
        run_mark=shared.incarnation,
        pods_folder=shared.folder / "p",
        images=settings.images,
        pull_backoff_s=settings.pull_backoff_s,
        pull_backoff_most_s=settings.pull_backoff_most_s,
        crash_backoff_s=settings.crash_backoff_s,
        crash_backoff_most_s=settings.crash_backoff_most_s,
        token_s=token_s,
    )
