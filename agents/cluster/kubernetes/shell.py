"""Performs the effects of the core of pods, and posts what the API shows as events."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import assert_never

from agents.cluster.events import ClusterEvent, NodeGone, NodeSeen, PlaceEnded, PlaceFailed, PlaceStarted, ViewSynced
from agents.cluster.kubernetes.effects import CreatePod, DeletePod, PodEffect, ReadNode, Report, StopCreating
from agents.cluster.kubernetes.events import (
    CreateRefused,
    CreateStopped,
    DeleteAnswered,
    EndRequested,
    Listed,
    NodeObserved,
    NodeRead,
    NodeVanished,
    PodCreated,
    PodEvent,
    PodSeen,
    PodVanished,
    StartRequested,
)
from agents.cluster.kubernetes.manifest import WORKER_APP, PodPlan, worker_pod
from agents.cluster.kubernetes.observations import read_node, read_pod
from agents.cluster.kubernetes.state import Pods
from messages.clusters import WorkerTemplate
from messages.decoding import Undecodable, decode
from messages.ids import JobName
from messages.labels import APP_LABEL, NOTICE_ANNOTATION
from runtime.clock import Clock
from runtime.kubernetes.client import AlreadyExists, ApiRefused, ApiUnavailable, KubernetesApi, NotFound
from runtime.kubernetes.objects import AnyObject, Node, Pod
from runtime.kubernetes.paths import NODES_PATH, pods_path
from runtime.kubernetes.watch import Change, Seen, Vanished, Watcher
from runtime.logs import Once, logger
from runtime.retry import Backoff
from runtime.role import RoleLoop

REQUESTS_AT_ONCE = 16

PodLoop = RoleLoop[Pods, PodEvent, PodEffect]


class PodShell:
    """Sends requests about pods and nodes: a few at a time, repeated with growing pauses until they are answered."""

    def __init__(self, api: KubernetesApi, plan: PodPlan, report: Callable[[ClusterEvent], None], clock: Clock) -> None:
        self._api = api
        self._plan = plan
        self._pods_path = pods_path(plan.namespace)
        self._report = report
        self._clock = clock
        self._creating: set[str] = set()
        self._room = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._log = logger(cluster=plan.cluster)
        self._log_once = Once()

    def perform(self, effect: PodEffect) -> Awaitable[PodEvent | None] | None:
        match effect:
            case Report(fact):
                self._log_fact(fact)
                self._report(fact)
            case CreatePod():
                self._creating.add(effect.uid)
                return self._create(effect)
            case StopCreating(uid):
                self._creating.discard(uid)
            case DeletePod():
                return self._delete(effect)
            case ReadNode():
                return self._read_node(effect)
            case _:
                assert_never(effect)
        return None

    async def _create(self, effect: CreatePod) -> PodCreated | CreateStopped | CreateRefused:
        uid, backoff = effect.uid, Backoff()
        manifest = worker_pod(self._plan, uid, effect.job, effect.template)
        while uid in self._creating:
            try:
                async with self._room:
                    created = await self._api.create(self._pods_path, manifest)
                return PodCreated(self._clock.monotonic_s(), uid, decode(created, AnyObject).metadata.uid)
            except AlreadyExists:
                return PodCreated(self._clock.monotonic_s(), uid, "")
            except ApiRefused as error:
                return CreateRefused(self._clock.monotonic_s(), uid, str(error))
            except (ApiUnavailable, Undecodable) as error:
                if self._log_once(str(error)):
                    self._log.warning("pod_not_created_yet", pod=uid, why=str(error))
                await backoff.wait(error.retry_after_s if isinstance(error, ApiUnavailable) else 0.0)
        return CreateStopped(self._clock.monotonic_s(), uid)

    async def _delete(self, effect: DeletePod) -> DeleteAnswered:
        uid, missing = effect.uid, False
        try:
            async with asyncio.timeout(effect.within_s):
                await self._delete_until_answered(effect)
        except TimeoutError:
            why = f"the API did not answer within {effect.within_s:g} s"
            self._log.warning("pod_not_deleted", pod=uid, why=why)
        except NotFound:
            missing = True
        except ApiRefused as error:
            self._log.warning("pod_not_deleted", pod=uid, why=str(error))
        return DeleteAnswered(self._clock.monotonic_s(), uid, missing)

    async def _delete_until_answered(self, effect: DeletePod) -> None:
        path, backoff = f"{self._pods_path}/{effect.uid}", Backoff()
        while True:
            try:
                async with self._room:
                    await self._api.delete(path, grace_s=effect.grace_s, uid=effect.pod_uid)
                return
            except ApiUnavailable as error:
                await backoff.wait(error.retry_after_s)

    async def _read_node(self, effect: ReadNode) -> NodeRead:
        name, backoff = effect.node, Backoff()
        while True:
            try:
                found = decode(await self._api.get(f"{NODES_PATH}/{name}"), AnyObject)
                return NodeRead(self._clock.monotonic_s(), name, effect.uids, found.metadata.creation_timestamp)
            except NotFound:
                return NodeRead(self._clock.monotonic_s(), name, effect.uids, None)
            except ApiUnavailable as error:
                await backoff.wait(error.retry_after_s)
            except (ApiRefused, Undecodable) as error:
                self._log.warning("node_not_read", node=name, why=str(error))
                await backoff.wait()

    def _log_fact(self, fact: ClusterEvent) -> None:
        match fact:
            case PlaceStarted(_, uid):
                self._log.info("place_started", uid=uid, job=fact.job)
            case PlaceFailed(_, uid, why):
                self._log.warning("place_failed", uid=uid, why=why)
            case PlaceEnded(_, uid, why):
                self._log.info("place_ended", uid=uid, why=why)
            case NodeGone(_, node):
                self._log.info("node_gone", node=node)
            case NodeSeen(_, observation) if observation.notice_s is not None:
                self._log.info(
                    "node_noticed", node=observation.node, notice_s=observation.notice_s, why=observation.why
                )
            case ViewSynced():
                self._log.info("kubernetes_synced")
            case _:
                pass


class PodPlaces:
    """Places made of pods, for the shell of the cluster-controller."""

    def __init__(self, loop: PodLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock

    def __contains__(self, uid: str) -> bool:
        return uid in self._loop.state.places

    def start(self, uid: str, job: JobName, template: WorkerTemplate, departing: frozenset[str]) -> None:
        self._loop.post(StartRequested(self._clock.monotonic_s(), uid, job, template))

    def recognise(self, uid: str, pid: int) -> bool:
        """Returns False: the watch finds pods, heartbeats do not."""
        return False

    async def end(self, uid: str, grace_s: float) -> None:
        """Requests the end of a place. The watch reports the end."""
        self._loop.post(EndRequested(self._clock.monotonic_s(), uid, grace_s))


class PodWatch:
    """Watches nodes and pods, and posts their changes as events."""

    def __init__(self, api: KubernetesApi, plan: PodPlan, post: Callable[[PodEvent], None], clock: Clock) -> None:
        self._post = post
        self._clock = clock
        self._traits = plan.nodes
        self._shutdown_grace_s = plan.grace_s
        self._nodes = Watcher(api, NODES_PATH, Node, self._on_nodes, clock)
        selector = f"{APP_LABEL}={WORKER_APP}"
        self._pods = Watcher(api, pods_path(plan.namespace), Pod, self._on_pods, clock, selector=selector)
        self._log = logger(cluster=plan.cluster)
        self._log_once = Once()

    async def run(self) -> None:
        """Runs until cancelled. Lists nodes first, because their state explains the pods."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run(), name="kubernetes/nodes")
            await self._nodes.synced.wait()
            tasks.create_task(self._pods.run(), name="kubernetes/pods")
            await self._pods.synced.wait()
            self._post(Listed(self._clock.monotonic_s()))

    def _on_nodes(self, changes: list[Change[Node]]) -> None:
        for change in changes:
            at_s = self._clock.monotonic_s()
            match change:
                case Seen(node):
                    deadline = (node.metadata.annotations or {}).get(NOTICE_ANNOTATION, "")
                    observation = read_node(node, self._traits, self._clock.wall_s(), self._shutdown_grace_s)
                    self._post(NodeObserved(at_s, observation, deadline))
                case Vanished(node):
                    self._post(NodeVanished(at_s, node.metadata.name))
                case _:
                    assert_never(change)

    def _on_pods(self, changes: list[Change[Pod]]) -> None:
        for change in changes:
            pod, at_s = read_pod(change.object), self._clock.monotonic_s()
            if pod is None:
                name = change.object.metadata.name
                if self._log_once(name):
                    self._log.warning("pod_not_understood", pod=name, why="its labels do not name its place and job")
                continue
            match change:
                case Seen():
                    self._post(PodSeen(at_s, self._clock.wall_s(), pod))
                case Vanished():
                    self._post(PodVanished(at_s, pod))
                case _:
                    assert_never(change)
