"""One reconciliation of a job: its changing state, its effects, and the actions that several phases share."""

from typing import TypedDict, Unpack

from msgspec.structs import replace

from controlplane.job import effects
from controlplane.job.learn_workers import tombstone_all
from controlplane.job.live.trainers import finishing, lives_on, never_parked, top
from controlplane.job.overdue import Overdue, patience_s
from controlplane.job.reload import forget_outdated
from controlplane.job.scripts import next_start
from controlplane.job.state import Job, Store
from controlplane.job.texts import STEPS_DONE, name_workers, waits_to
from messages.clusters import RemoveWorkers
from messages.ids import ClusterName, Generation, WorkerId
from messages.records import Phase, Record
from messages.workers import WrittenCheckpoint
from messages.worlds import Assignment, StoreAddress


class _RecordFields(TypedDict, total=False):
    phase: Phase
    why: str
    generation: Generation
    assignment: Assignment | None
    prepared: Assignment | None
    formed: int
    starts: int
    failures: int
    failed_tail: tuple[str, ...]
    checkpoint: WrittenCheckpoint | None


class Turn:
    """One reconciliation: the job as it changes, and the effects so far."""

    def __init__(self, job: Job, now_s: float) -> None:
        self.job = job
        self.now_s = now_s
        self.effects: list[effects.JobEffect] = []
        self.grows_at_s: float | None = None
        """When waiting workers are admitted, if there are some."""

    @property
    def record(self) -> Record:
        return self.job.record

    def set(self, **changes: Unpack[_RecordFields]) -> bool:
        """Changes the record. True if the phase or the world changed, so that more transitions may be due."""
        before = self.record
        after = replace(before, **changes)
        self.job = replace(self.job, record=after, why=after.why)
        return (before.phase, before.assignment) != (after.phase, after.assignment)

    def say(self, why: str) -> bool:
        """Sets what the job waits for, which is for people and is not saved."""
        self.job = replace(self.job, why=why)
        return False

    def halt_again(self) -> bool:
        late = never_parked(self.job)
        if not late or self.record.paused is not None:
            return False
        return self.reshape(f"{name_workers(late)} never parked and may still train")

    def begin_world(self) -> None:
        for gone in [worker for worker in self.record.outdated if worker not in self.job.workers]:
            self.job = forget_outdated(self.job, gone)
        self.job = replace(
            self.job,
            round=replace(
                self.job.round,
                assigned_s=self.now_s,
                published_s=None,
                clean=frozenset(),
                failure=None,
                quit=None,
                lost_member=False,
                store_lost=False,
                ranks_waiting="",
            ),
            script=replace(self.job.script, start=next_start(self.job), checkpointed_s=None),
            pause=replace(self.job.pause, starts_again=False, retry_s=None),
        )

    def reshape(self, why: str) -> bool:
        self.job = replace(
            self.job,
            round=replace(self.job.round, published_s=None, halted_s=None, assigned_s=self.now_s, ranks_waiting=""),
            pause=replace(self.job.pause, waiting_since_s=self.now_s),
        )
        self.set(phase=Phase.RESHAPING, generation=Generation(top(self.job) + 1), why=why)
        if self.record.stop_why is None and self.record.paused is None:
            generation = self.record.generation
            self.lasting_store(generation) if lives_on(self.job) else self.store_address(generation)
        return True

    def succeed(self, why: str) -> bool:
        """Ends the job once its scripts have exited; after the last step they have `patience_s` to do so."""
        late = finishing(self.job)
        if late and self.job.round.over_s is not None and self.now_s - self.job.round.over_s <= patience_s(self.job):
            return self.say(f"{STEPS_DONE}; {waits_to('end', late)}")
        return self.end(Phase.SUCCEEDED, why)

    def end(self, phase: Phase, why: str) -> bool:
        self.effects.append(effects.StopStores())
        self.job = replace(self.job, store=Store(), pause=replace(self.job.pause, retry_s=None))
        return self.set(phase=phase, why=why, prepared=None, checkpoint=self.job.checkpoint)

    def remove(self, overdue: Overdue) -> bool:
        """Removes overdue workers, unless this process was late itself. True if it removed some."""
        if not overdue or self.now_s < self.job.judges_from_s:
            return False
        whys: dict[WorkerId, str] = {}
        together: dict[tuple[ClusterName, str], list[WorkerId]] = {}
        for worker, why in overdue:
            if worker.worker not in whys:
                whys[worker.worker] = why
                together.setdefault((worker.cluster, why), []).append(worker.worker)
        self.job = tombstone_all(self.job, whys)
        for (cluster, why), names in together.items():
            command = RemoveWorkers(self.job.name, tuple(names), why)
            self.effects.append(effects.TellCluster(cluster, command))
        return True

    def lasting_store(self, generation: Generation) -> StoreAddress | None:
        """Address of the store of live trainers, which they keep: each generation has its own prefix in it."""
        return self.job.store.address or self.store_address(generation)

    def store_address(self, generation: Generation) -> StoreAddress | None:
        """Address of the store of that generation; requests the store if necessary."""
        store = self.job.store
        due = store.retry_s is not None and self.now_s >= store.retry_s
        if store.generation == generation and not due:
            return store.address
        self.job = replace(self.job, store=Store(generation, error=store.error))
        self.effects.append(effects.StartStore(generation))
        return None
