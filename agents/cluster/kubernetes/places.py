"""Places made of pods: what the watch shows becomes events, what the core asks for becomes requests.

A pod is created under the place's uid, so that asking twice creates one. It has ended when its containers have, when it
is no longer in the API, or when its node is not. What it leaves in the API then is deleted.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from typing import assert_never

from agents.cluster.events import ClusterEvent, PlaceEnded, PlaceFailed, PlaceSeen, PlaceStarted, ViewSynced
from agents.cluster.kubernetes.nodes import Nodes
from agents.cluster.kubernetes.observations import PodObservation, Stage, read_pod
from agents.cluster.kubernetes.pods import WORKER_APP, PodPlan, worker_pod
from agents.cluster.kubernetes.requests import PodRequests
from agents.cluster.state import KnownPlace
from messages.clusters import WorkerTemplate
from messages.ids import JobName
from messages.labels import APP_LABEL
from runtime.clock import Clock
from runtime.kubernetes.client import ApiRefused, KubernetesApi, NotFound
from runtime.kubernetes.objects import Pod
from runtime.kubernetes.paths import pods_path
from runtime.kubernetes.watch import Change, Seen, Vanished, Watcher
from runtime.logs import Once, logger

BURIED_AT_MOST = 4000
ABANDONED_GRACE_S = 10
"""A host ends its trainers when its agent is gone, and has so long for it."""
HOSTLESS_GRACE_S = 0
"""An agent without a host has nothing to hand over, and would take a signal for the notice of its node."""
SETTLE_S = 20.0
"""A request to create a pod that is under way is given so long before the pod is deleted."""
NEW = "its pod was just created"


class PodPlaces:
    """Posts events, while it runs."""

    def __init__(
        self,
        api: KubernetesApi,
        plan: PodPlan,
        post: Callable[[ClusterEvent], None],
        clock: Clock,
        known: Iterable[KnownPlace] = (),
        *,
        hostless_s: float,
    ) -> None:
        """`hostless_s` is how long an agent may stay whose host has ended."""
        self._plan = plan
        self._hostless_s = hostless_s
        self._post = post
        self._clock = clock
        self._known = tuple(known)
        self._requests = PodRequests(api, plan.namespace)
        self._nodes = Nodes(api, post, self._look_after, clock, plan.grace_s)
        selector = f"{APP_LABEL}={WORKER_APP}"
        self._pods = Watcher(api, pods_path(plan.namespace), Pod, self._on_change, clock, selector=selector)
        self._tasks: asyncio.TaskGroup | None = None
        self._held: dict[str, PodObservation] = {}
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._to_end: set[str] = set()
        """By us: its deletion is no notice."""
        self._ending: set[str] = set()
        """Just now."""
        self._cleaning: set[str] = set()
        self._buried: dict[str, None] = {}
        """Uids whose end was told, oldest first; what is seen of them later is only in the way."""
        self._log = logger(cluster=plan.cluster)
        self._log_once = Once()

    async def run(self) -> None:
        """Until cancelled; the pods live on. Nodes come first: what is known of them says what became of the pods."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._nodes.run(), name="kubernetes/nodes")
            await self._nodes.synced.wait()
            tasks.create_task(self._pods.run(), name="kubernetes/pods")
            await self._pods.synced.wait()
            self._on_synced()

    def __contains__(self, uid: str) -> bool:
        return uid in self._held or uid in self._creating

    def start(self, uid: str, job: JobName, template: WorkerTemplate, departing: frozenset[str]) -> None:
        self._creating[uid] = self._spawn(self._create(uid, job, template), f"pod-create/{uid}")

    def recognise(self, uid: str, pid: int) -> bool:
        """Whatever is a pod is seen as one, not heard."""
        return False

    async def end(self, uid: str, grace_s: float) -> None:
        """Its end is told when it is seen. Asked again, a pod that its node cannot end any more is simply removed."""
        if uid in self._ending:
            return
        self._ending.add(uid)
        self._to_end.add(uid)
        try:
            if uid in self._creating:
                await asyncio.wait({self._creating[uid]}, timeout=SETTLE_S)
            async with asyncio.timeout(grace_s):
                await self._requests.delete(uid, 0 if self._is_stuck(uid) else math.ceil(grace_s))
        except TimeoutError:
            self._log.warning("place_not_ended", uid=uid, why=f"the API did not answer within {grace_s:g} s")
        except NotFound:
            self._ended(uid, "there is no pod of it", None)
        finally:
            self._ending.discard(uid)

    async def _create(self, uid: str, job: JobName, template: WorkerTemplate) -> None:
        manifest = worker_pod(self._plan, uid, job, template)
        try:
            pod_uid = await self._requests.create(manifest, lambda: uid in self._to_end)
        except ApiRefused as error:
            self._log.warning("place_failed", uid=uid, job=job, why=str(error))
            self._post(PlaceFailed(self._clock.monotonic_s(), uid, str(error)))
        else:
            if pod_uid is not None and uid not in self._held and uid not in self._buried:
                self._log.info("place_started", uid=uid, job=job)
                self._hold(PodObservation(uid, pod_uid, job, Stage.WAITING, why=NEW))
        finally:
            del self._creating[uid]
            if uid in self._buried:
                self._to_end.discard(uid)

    def _on_synced(self) -> None:
        for place in self._known:
            if place.uid not in self._held:
                self._ended(place.uid, "its pod ended while no cluster-controller was there", None)
        homeless = {sight.node for sight in self._held.values()} - self._nodes.names - {""}
        for node in sorted(homeless):
            self._look_after(node)
        self._log.info("kubernetes_synced", pods=len(self._held), nodes=len(self._nodes.names))
        self._post(ViewSynced(self._clock.monotonic_s()))

    def _on_change(self, changes: list[Change[Pod]]) -> None:
        for change in changes:
            sight = read_pod(change.object)
            if sight is None:
                name = change.object.metadata.name
                if self._log_once(name):
                    self._log.warning("pod_not_understood", pod=name, why="its labels do not name its place and job")
                continue
            match change:
                case Seen():
                    self._see(sight)
                case Vanished():
                    self._lose(sight)
                case _:
                    assert_never(change)

    def _see(self, sight: PodObservation) -> None:
        if sight.uid in self._buried:
            self._clean_up(sight, 0)
            return
        match sight.stage:
            case Stage.WAITING | Stage.RUNNING:
                self._hold(sight)
            case Stage.ABANDONED:
                self._to_end.add(sight.uid)
                self._hold(sight)
                if sight.deleted_at is None:
                    self._clean_up(sight, ABANDONED_GRACE_S)
            case Stage.HOSTLESS:
                before = self._held.get(sight.uid)
                self._hold(sight)
                if before is None or before.stage is not Stage.HOSTLESS:
                    self._spawn(self._end_hostless(sight.uid), f"pod-hostless/{sight.uid}")
            case Stage.ENDED:
                before = self._held.get(sight.uid)
                if before is not None and before.stage is Stage.WAITING:
                    # It lived, if only between two looks: the core counts from here.
                    self._post(PlaceSeen(self._clock.monotonic_s(), sight.uid, sight.node))
                self._ended(sight.uid, sight.why, sight.code)
                self._clean_up(sight, 0)
            case _:
                assert_never(sight.stage)

    async def _end_hostless(self, uid: str) -> None:
        """An agent that talked with its host leaves by itself; one whose host never came would wait for an hour."""
        await asyncio.sleep(self._hostless_s)
        sight = self._held.get(uid)
        if sight is not None and sight.stage is Stage.HOSTLESS and sight.deleted_at is None:
            self._to_end.add(uid)
            self._clean_up(sight, HOSTLESS_GRACE_S)

    def _lose(self, sight: PodObservation) -> None:
        asked = "its pod was ended" if sight.uid in self._to_end else "its pod was deleted"
        told = sight.stage in (Stage.ENDED, Stage.ABANDONED, Stage.HOSTLESS)
        self._ended(sight.uid, sight.why if told else asked, sight.code)

    def _hold(self, sight: PodObservation) -> None:
        before, now_s = self._held.get(sight.uid), self._clock.monotonic_s()
        self._held[sight.uid] = sight
        if before is None:
            self._post(PlaceStarted(now_s, sight.uid, 0, sight.pod_uid, sight.job))
        if before == sight:
            return
        notice_s = None
        if sight.deleted_at is not None and sight.uid not in self._to_end:
            notice_s = max(0.0, sight.deleted_at.timestamp() - self._clock.wall_s())
        mute = sight.stage is Stage.WAITING
        self._post(PlaceSeen(now_s, sight.uid, sight.node, mute, sight.why, notice_s, sight.failure))

    def _ended(self, uid: str, why: str, code: int | None) -> None:
        """Told once."""
        self._held.pop(uid, None)
        if uid not in self._creating:
            self._to_end.discard(uid)
        if uid in self._buried:
            return
        self._buried[uid] = None
        while len(self._buried) > BURIED_AT_MOST:
            del self._buried[next(iter(self._buried))]
        self._log.info("place_ended", uid=uid, why=why)
        self._post(PlaceEnded(self._clock.monotonic_s(), uid, why, code))

    def _look_after(self, node: str) -> None:
        """A node that is no more takes its pods with it."""
        there = [sight for sight in self._held.values() if sight.node == node]
        if there:
            self._spawn(self._end_with(node, there), f"node-gone/{node}")

    async def _end_with(self, node: str, there: list[PodObservation]) -> None:
        """The next machine of the same name may be there already, with pods of its own."""
        born = await self._nodes.born(node)
        for sight in there:
            if sight.uid in self._held and not _is_placed_since(sight, born):
                self._ended(sight.uid, f"its node {node} is gone", None)
                self._clean_up(sight, 0)

    def _is_stuck(self, uid: str) -> bool:
        """Deleted, and the machine that should end it does not answer."""
        sight = self._held.get(uid)
        if sight is None or sight.deleted_at is None or sight.deleted_at.timestamp() > self._clock.wall_s():
            return False
        return not self._nodes.is_ready(sight.node)

    def _clean_up(self, sight: PodObservation, grace_s: int) -> None:
        if sight.uid not in self._cleaning:
            self._cleaning.add(sight.uid)
            self._spawn(self._remove(sight, grace_s), f"pod-delete/{sight.uid}")

    async def _remove(self, sight: PodObservation, grace_s: int) -> None:
        try:
            await self._requests.delete(sight.uid, grace_s, sight.pod_uid)
        except NotFound:
            return
        finally:
            self._cleaning.discard(sight.uid)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        assert self._tasks is not None  # nothing is seen or asked for before it runs
        return self._tasks.create_task(work, name=name)


def _is_placed_since(sight: PodObservation, born: datetime | None) -> bool:
    return born is not None and sight.scheduled_at is not None and sight.scheduled_at >= born
