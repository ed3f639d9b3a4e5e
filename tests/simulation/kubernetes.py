"""A Kubernetes cluster, reduced to what its cluster-controller sees: nodes, pods, a scheduler and kubelets.

The cloud adds and removes nodes. A pod waits until a node of its job is ready and free, then its worker starts there.
A controller's watch is in order and without loss, but late; a new controller lists everything first.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec import structs

from agents.cluster import events as cluster_events
from agents.cluster.state import KnownPlace
from agents.worker import events as worker_events
from messages.clusters import NodeObservation, WorkerTemplate
from messages.ids import ClusterName, JobName
from messages.labels import JOB_LABEL, POOL_LABEL
from simulator.cloud.model.effects import (
    AnnounceMaintenance,
    DrainNode,
    DropCluster,
    HostCluster,
    PlaceNode,
    RegionRequest,
    RemoveNode,
    SilenceNode,
    WarnNode,
)
from tests.simulation.clockwork import Broken

if TYPE_CHECKING:
    from tests.simulation.actors import ControllerActor, WorkerActor
    from tests.simulation.system import System

DRAIN_S = 2.0
"""Grace period of an evicted worker in seconds."""


@dataclass
class Node:
    name: str
    uid: str
    zone: str
    pool: str
    job: JobName
    is_up: bool = True
    """False from the end of its machine until the API forgets it."""
    is_silent: bool = False
    is_cordoned: bool = False
    ends_s: float | None = None

    @property
    def takes_pods(self) -> bool:
        return self.is_up and not self.is_silent and not self.is_cordoned and self.ends_s is None


@dataclass
class Pod:
    uid: str
    job: JobName
    template: WorkerTemplate
    node: Node | None = None
    worker: "WorkerActor | None" = None
    is_deleted: bool = False


class Kubernetes:
    is_watched = True

    def __init__(self, system: "System", cluster: ClusterName) -> None:
        self._system = system
        self._clockwork = system.clockwork
        self._cluster = cluster
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.stale: list[WorkerActor] = []
        """Workers on machines that hang, whose pods were removed from the API."""
        self._controller: ControllerActor | None = None
        self._sent_s = 0.0

    # For the controller

    def attach(self, controller: "ControllerActor", known: Iterable[KnownPlace]) -> None:
        uids = [place.uid for place in known]
        self._controller = None
        self._clockwork.after(self._clockwork.chance.uniform(0.01, 0.2), partial(self._list, controller, uids))

    def start(self, uid: str, job: JobName, template: WorkerTemplate) -> None:
        if uid in self.pods:
            raise Broken(f"pod {uid} was created twice")
        pod = self.pods[uid] = Pod(uid, job, template)
        self._tell(_started(pod))
        self._tell(self._seen(pod))
        self._clockwork.after(0.01, self.schedule)

    def end(self, uid: str, grace_s: float, why: str) -> None:
        """Ends a pod; a second call removes a pod whose node cannot end it any more."""
        pod = self.pods.get(uid)
        if pod is None or pod.worker is None or not pod.worker.alive:
            if pod is None or pod.node is None or pod.node.is_up:
                self._remove(uid, why)
            return
        assert pod.node is not None
        if pod.is_deleted and pod.node.is_silent:
            self.stale.append(pod.worker)
            self._remove(uid, why)
            return
        pod.is_deleted = True
        worker = pod.worker
        if not pod.node.is_silent:
            worker.post(worker_events.NoticeCame(worker.now_s, grace_s, "signal"))
            worker.later(grace_s, lambda: worker.kill(why))

    def is_sound(self, uid: str) -> bool:
        pod = self.pods.get(uid)
        return pod is not None and pod.node is not None and pod.node.takes_pods and not pod.is_deleted

    # For the cloud

    def obey(self, request: RegionRequest, done: Callable[[bool], None]) -> None:
        drained = False
        match request:
            case PlaceNode():
                self._place(request)
            case WarnNode(_, _, name, notice_s):
                self._warn(self.nodes[name], notice_s)
            case RemoveNode(_, _, name):
                self._forget(name)
            case SilenceNode(_, _, name, _, silent):
                self._silence(self.nodes[name], silent)
            case DrainNode(_, _, name):
                drained = self._drain(self.nodes[name])
            case HostCluster() | DropCluster() | AnnounceMaintenance():
                pass
            case _:
                assert_never(request)
        done(drained)

    def schedule(self) -> None:
        taken = {pod.node.name for pod in self.pods.values() if pod.node is not None}
        for pod in self.pods.values():
            free = (
                node
                for node in self.nodes.values()
                if node.takes_pods and node.job == pod.job and node.name not in taken
            )
            node = next(free, None) if pod.node is None else None
            if node is not None:
                pod.node = node
                taken.add(node.name)
                self._tell(self._seen(pod))
                self._clockwork.after(self._clockwork.chance.uniform(0.1, 1.0), partial(self._run, pod))

    def _run(self, pod: Pod) -> None:
        """Starts the worker when the image is there."""
        node = pod.node
        if self.pods.get(pod.uid) is not pod or node is None or not node.is_up or pod.is_deleted:
            return
        if node.is_silent:
            self._clockwork.after(1.0, partial(self._run, pod))
            return
        worker = self._system.start_worker(pod.uid, self._cluster, pod.job, pod.template.slots, node.name)
        worker.exited = partial(self._exited, pod)
        pod.worker = worker
        self._tell(self._seen(pod))

    def _exited(self, pod: Pod, why: str) -> None:
        if pod.node is not None and pod.node.is_up and not pod.node.is_silent:
            self._remove(pod.uid, why)

    def _remove(self, uid: str, why: str) -> None:
        self.pods.pop(uid, None)
        self._tell(lambda at_s: cluster_events.PlaceEnded(at_s, uid, why))
        self._clockwork.after(0.01, self.schedule)

    # Nodes

    def _place(self, request: PlaceNode) -> None:
        job = JobName(request.labels.get(JOB_LABEL, ""))
        if request.node in self.nodes:
            raise Broken(f"node {request.node} was placed twice")
        node = Node(request.node, request.instance, request.zone, request.labels[POOL_LABEL], job)
        self.nodes[node.name] = node
        self._tell_node(node)
        self._clockwork.after(0.05, self.schedule)

    def _warn(self, node: Node, notice_s: float) -> None:
        if notice_s <= 0:
            self._end_machine(node)
            return
        node.ends_s = self._clockwork.now_s + notice_s
        self._tell_node(node)
        self._clockwork.after(notice_s, lambda: self._end_machine(node))
        if self._clockwork.chance.random() < 0.5:
            for worker in self._workers_on(node):
                worker.post(worker_events.NoticeCame(worker.now_s, notice_s, "signal"))

    def _end_machine(self, node: Node) -> None:
        """Ends a machine without a report to the API."""
        node.is_up = False
        for worker in self._workers_on(node):
            worker.kill("its machine is gone")
        self._tell_node(node)

    def _forget(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is None:
            return
        self._end_machine(node)
        self._tell(lambda at_s: cluster_events.NodeGone(at_s, name))
        for pod in [each for each in self.pods.values() if each.node is node]:
            self._remove(pod.uid, f"its node {name} is gone")

    def _silence(self, node: Node, silent: bool) -> None:
        node.is_silent = silent
        for worker in self._workers_on(node):
            worker.reconnect(not silent)
        if not silent:
            for pod in [each for each in self.pods.values() if each.node is node]:
                if pod.worker is not None and (pod.is_deleted or not pod.worker.alive):
                    pod.worker.kill("its pod was deleted")
                    self._remove(pod.uid, "its pod was deleted")
            for worker in self.stale:
                if worker.state.identity.node == node.name:
                    worker.kill("its pod was deleted")
        self._tell_node(node)
        self._clockwork.after(0.01, self.schedule)

    def _drain(self, node: Node) -> bool:
        if not node.is_cordoned:
            node.is_cordoned = True
            self._tell_node(node)
        there = [pod for pod in self.pods.values() if pod.node is node]
        for pod in there:
            if pod.worker is None or not pod.worker.alive:
                self._remove(pod.uid, "evicted")
            elif not pod.is_deleted:
                self.end(pod.uid, DRAIN_S, "evicted")
        return not there

    def _workers_on(self, node: Node) -> "list[WorkerActor]":
        workers = [pod.worker for pod in self.pods.values() if pod.node is node and pod.worker is not None]
        mine = [each for each in self.stale if each.state.identity.node == node.name]
        return [each for each in (*workers, *mine) if each.alive]

    # The watch

    def _list(self, controller: "ControllerActor", known: list[str]) -> None:
        if not controller.alive:
            return
        self._controller = controller
        for node in self.nodes.values():
            self._tell_node(node)
        for pod in self.pods.values():
            self._tell(_started(pod))
            self._tell(self._seen(pod))
        for uid in known:
            if uid not in self.pods:
                self._tell(partial(_not_found, uid))
        self._tell(cluster_events.ViewSynced)

    def _tell_node(self, node: Node) -> None:
        ready, cordoned, ends_s = node.is_up and not node.is_silent, node.is_cordoned, node.ends_s
        observation = NodeObservation(
            node.name,
            uid=node.uid,
            zone=node.zone,
            pool=node.pool,
            job=node.job,
            ready=ready,
            was_ready=not ready,
            cordoned=cordoned and ends_s is None,
        )

        def seen(at_s: float) -> cluster_events.NodeSeen:
            left_s = None if ends_s is None else max(0.0, ends_s - self._clockwork.now_s)
            notice_s = DRAIN_S if observation.cordoned else left_s
            return cluster_events.NodeSeen(at_s, structs.replace(observation, notice_s=notice_s))

        self._tell(seen)

    def _seen(self, pod: Pod) -> "Callable[[float], cluster_events.PlaceSeen]":
        node, mute = pod.node.name if pod.node is not None else "", pod.worker is None
        waits_for = "" if not mute else "it is being started" if node else "no node is free"
        return lambda at_s: cluster_events.PlaceSeen(at_s, pod.uid, node, mute, waits_for)

    def _tell(self, make: "Callable[[float], cluster_events.ClusterEvent]") -> None:
        """Sends an event in order to the controller that watches now."""
        controller, clockwork = self._controller, self._clockwork
        if controller is None:
            return
        late = clockwork.happens(0.02, "watch late")
        delay_s = clockwork.chance.uniform(0.3, 2.0) if late else 0.003
        self._sent_s = max(self._sent_s, clockwork.now_s + delay_s)
        clockwork.after(self._sent_s - clockwork.now_s, lambda: controller.post(make(controller.now_s)))


def _started(pod: Pod) -> Callable[[float], cluster_events.PlaceStarted]:
    return lambda at_s: cluster_events.PlaceStarted(at_s, pod.uid, 0, pod.uid, pod.job)


def _not_found(uid: str, at_s: float) -> cluster_events.PlaceEnded:
    return cluster_events.PlaceEnded(at_s, uid, "its pod ended while no cluster-controller was there")
