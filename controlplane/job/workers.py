"""The workers of a job, by id, with indexes of those that every decision needs.

A decision copies the table once and changes its copy in place, so a batch of ten thousand facts costs one copy.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Self

from msgspec import Struct

from messages.clusters import Presence
from messages.ids import NO_GENERATION, ClusterName, Generation, WorkerId
from messages.workers import Fallen, TrainerExit, TrainerStatus, WorkerPhase


class Worker(Struct, frozen=True, gc=False):
    """What is known about one worker of this job."""

    worker: WorkerId
    cluster: ClusterName
    first_seen_s: float
    heard_s: float
    """When it last spoke, on this process's monotonic clock."""
    presence: Presence = Presence.ALIVE
    seq: int = -1
    phase: WorkerPhase = WorkerPhase.WARMING
    generation: Generation = NO_GENERATION
    slots: int = 1
    region: str = ""
    zone: str = ""
    node: str = ""
    address: str = "127.0.0.1"
    pid: int = 0
    step: int | None = None
    checkpoints: int = 0
    exits: tuple[TrainerExit, ...] = ()
    fallen: tuple[Fallen, ...] = ()
    noticed: str | None = None
    """Reason of its notice; None without a notice."""
    deadline_s: float | None = None
    """When it leaves at the latest."""
    trainers: tuple[TrainerStatus, ...] = ()
    """Its live trainers, in the order of their local ranks."""
    assigned: Generation = NO_GENERATION
    """Generation of the newest assignment that it received."""


class Workers(dict[WorkerId, Worker]):
    """A table of workers. Only `put` and `drop` change it; they maintain the indexes."""

    __slots__ = ("answers", "changed", "exited", "finished", "live", "noticed", "overdue", "silent", "warm")

    def __init__(self, workers: Iterable[Worker] = ()) -> None:
        super().__init__()
        self.live = 0
        """Number of workers with live trainers."""
        self.warm: Counter[ClusterName] = Counter()
        """By cluster: number of warm workers that reported."""
        self.silent: set[WorkerId] = set()
        self.noticed: set[WorkerId] = set()
        self.exited: set[WorkerId] = set()
        """Workers that reported exits of trainers."""
        self.finished: set[WorkerId] = set()
        """Workers with a trainer that has done all steps."""
        self.overdue: set[WorkerId] = set()
        """Workers with a trainer that waits for long in an all-reduce."""
        self.changed: set[WorkerId] = set()
        """Workers put or dropped since the table was copied."""
        self.answers: dict[object, tuple[object, ...]] = {}
        """Cache of `queries.remembered`."""
        for worker in workers:
            self.put(worker)

    def own_copy(self) -> Self:
        """A copy that one decision may change."""
        copied = type(self)()
        copied.update(self)
        copied.live, copied.warm = self.live, self.warm.copy()
        copied.silent, copied.noticed, copied.exited = set(self.silent), set(self.noticed), set(self.exited)
        copied.finished, copied.overdue = set(self.finished), set(self.overdue)
        return copied

    def put(self, worker: Worker) -> None:
        self.answers.clear()
        self._unindex(self.get(worker.worker))
        self[worker.worker] = worker
        self.changed.add(worker.worker)
        self._index(worker)

    def drop(self, worker: WorkerId) -> None:
        self.answers.clear()
        self._unindex(self.pop(worker, None))
        self.changed.add(worker)

    def _index(self, worker: Worker) -> None:
        name = worker.worker
        if _is_warm(worker):
            self.warm[worker.cluster] += 1
        if worker.presence is Presence.SILENT:
            self.silent.add(name)
        if worker.noticed is not None:
            self.noticed.add(name)
        if worker.exits:
            self.exited.add(name)
        if worker.trainers:
            self.live += 1
            if any(trainer.finished for trainer in worker.trainers):
                self.finished.add(name)
            if any(trainer.overdue for trainer in worker.trainers):
                self.overdue.add(name)

    def _unindex(self, worker: Worker | None) -> None:
        if worker is None:
            return
        name = worker.worker
        if _is_warm(worker):
            self.warm[worker.cluster] -= 1
        if worker.presence is Presence.SILENT:
            self.silent.discard(name)
        if worker.noticed is not None:
            self.noticed.discard(name)
        if worker.exits:
            self.exited.discard(name)
        if worker.trainers:
            self.live -= 1
            self.finished.discard(name)
            self.overdue.discard(name)


def _is_warm(worker: Worker) -> bool:
    return worker.seq >= 0 and worker.phase is not WorkerPhase.WARMING
