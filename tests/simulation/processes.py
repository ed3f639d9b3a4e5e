"""The workers of a cluster that is one permanent machine with plain processes."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from agents.cluster import events as cluster_events
from agents.cluster.state import KnownPlace
from agents.worker import events as worker_events
from messages.clusters import WorkerTemplate
from messages.ids import JobName

if TYPE_CHECKING:
    from tests.simulation.actors import ControllerActor
    from tests.simulation.system import System


class PlaceHost(Protocol):
    """The places of a cluster's workers, which outlive its controller."""

    is_watched: bool
    """True if a controller sees the workers; otherwise it must remember them."""

    def attach(self, controller: "ControllerActor", known: Iterable[KnownPlace]) -> None: ...

    def start(self, uid: str, job: JobName, template: WorkerTemplate) -> None: ...

    def end(self, uid: str, grace_s: float, why: str) -> None: ...

    def is_sound(self, uid: str) -> bool:
        """True if the machine of this place stays."""


class Processes:
    is_watched = False

    def __init__(self, system: "System") -> None:
        self._system = system
        self._controller: ControllerActor

    def attach(self, controller: "ControllerActor", known: Iterable[KnownPlace]) -> None:
        self._controller = controller
        for place in known:
            controller.later(0.01, partial(self._look_for, place.uid))

    def start(self, uid: str, job: JobName, template: WorkerTemplate) -> None:
        controller = self._controller
        worker = self._system.start_worker(uid, controller.cluster, job, template.slots)
        worker.exited = partial(self._ended, uid)
        controller.later(0.01, lambda: controller.post(cluster_events.PlaceStarted(controller.now_s, uid, worker.pid)))

    def end(self, uid: str, grace_s: float, why: str) -> None:
        worker = self._system.workers.get(uid)
        if worker is None or not worker.alive:
            self._ended(uid, why)
            return
        worker.post(worker_events.NoticeCame(worker.now_s, grace_s, "signal"))
        self._controller.later(grace_s, lambda: worker.kill(why))

    def is_sound(self, uid: str) -> bool:
        return True

    def _look_for(self, uid: str) -> None:
        controller, worker = self._controller, self._system.workers.get(uid)
        if worker is not None and worker.alive:
            controller.post(cluster_events.PlaceStarted(controller.now_s, uid, worker.pid))
        else:
            controller.post(cluster_events.PlaceEnded(controller.now_s, uid, "not found after a restart"))

    def _ended(self, uid: str, why: str) -> None:
        controller = self._controller
        controller.later(0.002, lambda: controller.post(cluster_events.PlaceEnded(controller.now_s, uid, why)))


class NoWorkers:
    """A cluster that takes its share of the job and never starts a worker."""

    is_watched = False

    def attach(self, controller: "ControllerActor", known: Iterable[KnownPlace]) -> None:
        self._controller = controller

    def start(self, uid: str, job: JobName, template: WorkerTemplate) -> None:
        controller = self._controller
        controller.later(0.01, lambda: controller.post(cluster_events.PlaceStarted(controller.now_s, uid, 0)))

    def end(self, uid: str, grace_s: float, why: str) -> None:
        controller = self._controller
        controller.later(0.002, lambda: controller.post(cluster_events.PlaceEnded(controller.now_s, uid, why)))

    def is_sound(self, uid: str) -> bool:
        return False
