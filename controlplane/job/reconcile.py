"""Second half of a decision: compare what is known with what is wanted, move the job on, and ask for what is missing.

Nothing is answered only once: whatever is not yet confirmed is asked for again. And nothing is published before the
record that decides it is saved, so that a master that starts again never contradicts one that died.
"""

from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple, TypedDict, Unpack

from msgspec import structs

from controlplane.job import effects
from controlplane.job.learn import bury, has_finished, ranks_of
from controlplane.job.ranks import Arrangement, arrange, choose, shares
from controlplane.job.state import Cluster, Job, Phase, Record, Store, Worker
from messages.clusters import KeepWorkers, Presence, RemoveWorkers, WorkerTemplate
from messages.ids import ClusterName, Generation, WorkerId
from messages.workers import WorkerPhase
from messages.worlds import Assignment, Halt, Hyperparameters, Member, Release, StoreAddress

REPEAT_S = 1.0
"""How long to wait for a sign that a message arrived before it is sent again."""
BUSY_TICK_S = 0.5
CALM_TICK_S = 1.0
TOPOLOGY_FRESH_S = 2.5
"""An older topology tells nothing of who is silent: the controller itself may be."""


class Cause(StrEnum):
    STOP = "stop"
    LOSS = "loss"
    FAILURE = "failure"
    STORE = "store"
    NOTICE = "notice"
    SCALE = "scale"
    JOIN = "join"


class Change(NamedTuple):
    """Why the present world cannot stay as it is."""

    cause: Cause
    why: str


class _RecordFields(TypedDict, total=False):
    phase: Phase
    why: str
    generation: Generation
    assignment: Assignment | None
    formed: int
    failures: int
    failed_tail: tuple[str, ...]


class Turn:
    """One reconciliation: the job as it becomes, and the effects on the way."""

    def __init__(self, job: Job, now_s: float) -> None:
        self.job = job
        self.now_s = now_s
        self.effects: list[effects.JobEffect] = []

    def reconcile(self) -> None:
        if not self._record.phase.ended:
            self._put_out_silent()
            while self._advance():
                pass
        self._save()
        self._publish()
        self._release()
        self._tell_clusters()

    @property
    def wake_at_s(self) -> float | None:
        """When to look again though nothing happened."""
        if self._record.phase.ended and not self._unfinished():
            return None
        wake_s = self.now_s + (BUSY_TICK_S if self._unfinished() else CALM_TICK_S)
        retry_s = self.job.retry_s
        return min(wake_s, retry_s) if retry_s is not None and retry_s > self.now_s else wake_s

    # Moving on

    def _advance(self) -> bool:
        """One transition, if one is due."""
        match self._record.phase:
            case Phase.WAITING:
                return self._from_waiting()
            case Phase.FORMING:
                return self._from_forming() if self._is_decided() else self._decide_world()
            case Phase.RUNNING:
                return self._from_running()
            case Phase.RESHAPING:
                return self._from_reshaping()
            case Phase.SUCCEEDED | Phase.FAILED | Phase.STOPPED:
                return False

    def _from_waiting(self) -> bool:
        if self._record.stop_why is not None:
            return self._end(Phase.STOPPED, self._record.stop_why)
        wait = self._what_to_wait_for()
        if wait is not None:
            return self._say(wait)
        generation = self._record.generation
        if generation == 0 or self._is_decided():
            generation = Generation(generation + 1)
        self.job = replace(self.job, published_s=None)
        return self._set(phase=Phase.FORMING, generation=generation, why="waiting for the store")

    def _what_to_wait_for(self) -> str | None:
        if self.job.retry_s is not None and self.now_s < self.job.retry_s:
            return f"failure {self._record.failures} of {self.job.spec.failures.max}: starting again in a moment"
        chosen = self._chosen()
        least = self.job.spec.workers.min
        coming = self._coming()
        if len(chosen) < least:
            known = f", {len(coming)} starting" if coming else ""
            return f"{len(chosen)} of at least {least} workers have joined{known}"
        if arrange(chosen, self.job.spec.replica).world_size == 0:
            return f"{len(chosen)} workers have joined, too few ranks for one replica of {self.job.spec.replica}"
        if self._record.formed == 0 and len(chosen) < self._record.wanted and self._may_wait_for(coming):
            return f"{len(chosen)} of {self._record.wanted} workers have joined, {len(coming)} starting"
        return None

    def _may_wait_for(self, coming: list[Worker]) -> bool:
        """The first world waits for those that are known to come; later ones wait for nobody."""
        unanswered = any(
            cluster.keeps != count
            for cluster, count in self._keeps()
            if self._waited_s() < self.job.spec.timeouts.ready_s
        )
        return bool(coming) or unanswered

    def _decide_world(self) -> bool:
        """Membership is fixed at the last moment: whoever is known when the store is there goes in together."""
        if self._what_to_wait_for() is not None or self._record.stop_why is not None:
            return self._set(phase=Phase.WAITING)
        address = self._store_address()
        if address is None:
            return False
        chosen = self._chosen()
        world = arrange(chosen, self.job.spec.replica)
        why = f"{len(world.members)} workers are here: a world of {world.world_size}"
        self.job = replace(
            self.job,
            assigned_s=self.now_s,
            published_s=None,
            clean=frozenset(),
            failure=None,
            lost_in_round=False,
            store_lost=False,
            retry_s=None,
            ranks_waiting="",
        )
        return self._set(assignment=self._assignment(world, address, why), why=why)

    def _from_forming(self) -> bool:
        self._put_out_unready(self._unready(), "did not start its trainers")
        change = self._must_change()
        if change is not None:
            return self._reshape(change)
        unready = self._unready()
        if unready:
            return self._say(f"waiting for {_names(unready)} to start")
        self.effects.append(
            effects.WatchStore(self._record.generation, self._world_size(), self.job.spec.timeouts.meet_s)
        )
        return self._set(phase=Phase.RUNNING, formed=self._record.formed + 1, why=f"a world of {self._world_size()}")

    def _from_running(self) -> bool:
        if self._all_clean():
            return self._end(Phase.SUCCEEDED, f"all {self._world_size()} ranks exited with 0")
        change = self._must_change() or self._could_be_better()
        if change is not None:
            return self._reshape(change)
        return self._say(self.job.ranks_waiting or self._record.why)

    def _from_reshaping(self) -> bool:
        self._put_out_unready(self._unparked(), "did not end its trainers")
        unparked = self._unparked()
        if unparked:
            return self._say(f"{self._record.why}; waiting for {_names(unparked)} to park")
        return self._close_round()

    def _close_round(self) -> bool:
        """Everybody has parked or is gone: only now is it known whether the script failed or a peer was lost."""
        failure = self.job.failure
        if self._all_clean():
            return self._end(Phase.SUCCEEDED, f"all {self._world_size()} ranks exited with 0")
        if self._record.stop_why is not None:
            return self._end(Phase.STOPPED, self._record.stop_why)
        self.job = replace(self.job, waiting_since_s=self.now_s)
        if failure is None or self._is_collateral():
            return self._set(phase=Phase.WAITING)
        failures = self._record.failures + 1
        limits = self.job.spec.failures
        why = describe(failure.exit.rank, failure.exit.code, failure.exit.signal, failure.exit.error)
        if failures > limits.max:
            self._set(failures=failures, failed_tail=failure.exit.tail)
            return self._end(Phase.FAILED, f"{why}; {_allowed(limits.max)}")
        backoff_s = min(limits.backoff_s * 2 ** min(failures - 1, 20), limits.backoff_max_s)
        self.job = replace(self.job, retry_s=self.now_s + backoff_s)
        return self._set(phase=Phase.WAITING, failures=failures, why=f"{why}: starting again in {backoff_s:g} s")

    def _is_collateral(self) -> bool:
        """Ranks fail when a peer or the store is lost: that is not the script's failure."""
        failure = self.job.failure
        return self.job.lost_in_round or (failure is not None and failure.exit.peer_lost and self.job.store_lost)

    def _reshape(self, change: Change) -> bool:
        self.job = replace(
            self.job, published_s=None, assigned_s=self.now_s, ranks_waiting="", waiting_since_s=self.now_s
        )
        self._set(phase=Phase.RESHAPING, generation=Generation(self._record.generation + 1), why=change.why)
        if change.cause is not Cause.STOP:
            self._store_address()
        return True

    def _end(self, phase: Phase, why: str) -> bool:
        self.effects.append(effects.StopStores())
        self.job = replace(self.job, store=Store(), retry_s=None)
        return self._set(phase=phase, why=why)

    # What may be wrong with the present world

    def _must_change(self) -> Change | None:
        if self._record.stop_why is not None:
            return Change(Cause.STOP, self._record.stop_why)
        for member in self._members():
            worker = self.job.workers.get(member.worker)
            if has_finished(self.job, member):
                continue
            if worker is None:
                reason = self.job.gone.get(member.worker, "gone")
                return Change(Cause.LOSS, f"worker {member.worker} was lost: {reason}")
            if worker.noticed is not None:
                return Change(Cause.NOTICE, f"worker {member.worker} has to go: {worker.noticed}")
        failure = self.job.failure
        if failure is not None:
            exit_ = failure.exit
            return Change(Cause.FAILURE, describe(exit_.rank, exit_.code, exit_.signal, exit_.error))
        if self.job.store_lost and self._record.phase is Phase.FORMING:
            return Change(Cause.STORE, "the store was lost before the ranks had met")
        return None

    def _could_be_better(self) -> Change | None:
        if self.job.clean:
            return None
        wanted = self._record.wanted
        if len(self._members()) > wanted:
            return Change(Cause.SCALE, f"scaled to {wanted} workers")
        present = {member.worker for member in self._members()}
        chosen = self._chosen()
        if arrange(chosen, self.job.spec.replica).world_size > self._world_size():
            joined = [worker.worker for worker in chosen if worker.worker not in present]
            return Change(Cause.JOIN, f"{_names(joined)} joined")
        return None

    def _put_out_silent(self) -> None:
        for worker in tuple(self.job.workers.values()):
            cluster = self.job.clusters.get(worker.cluster)
            if worker.presence is not Presence.SILENT or cluster is None:
                continue
            silent_s = self.now_s - worker.heard_s
            if silent_s > self.job.spec.timeouts.suspect_s and self.now_s - cluster.heard_s <= TOPOLOGY_FRESH_S:
                self._put_out(worker, f"silent for {silent_s:.1f} s")

    def _put_out_unready(self, late: list[WorkerId], what: str) -> None:
        limit_s = self.job.spec.timeouts.ready_s + self.job.spec.timeouts.stop_grace_s
        if self.job.assigned_s is None or self.now_s - self.job.assigned_s <= limit_s:
            return
        for worker in late:
            self._put_out(self.job.workers[worker], f"{what} within {limit_s:g} s")

    def _put_out(self, worker: Worker, why: str) -> None:
        self.job = bury(self.job, worker.worker, why)
        command = RemoveWorkers(self.job.name, (worker.worker,), why)
        self.effects.append(effects.TellCluster(worker.cluster, command))

    # Who is there

    def _chosen(self) -> list[Worker]:
        present = {member.worker for member in self._members()}
        return choose(filter(_can_train, self.job.workers.values()), self._record.wanted, present)

    def _coming(self) -> list[Worker]:
        limit_s = self.now_s - self.job.spec.timeouts.ready_s
        return [
            worker
            for worker in self.job.workers.values()
            if worker.phase is WorkerPhase.WARMING and worker.noticed is None and worker.first_seen_s > limit_s
        ]

    def _members(self) -> tuple[Member, ...]:
        assignment = self._record.assignment
        return assignment.members if assignment is not None else ()

    def _is_decided(self) -> bool:
        assignment = self._record.assignment
        return assignment is not None and assignment.generation == self._record.generation

    def _unready(self) -> list[WorkerId]:
        """Members of the decided world that have not said that they forked their trainers."""
        return [
            member.worker
            for member in self._members()
            if (worker := self.job.workers.get(member.worker)) is not None and not self._is_ready(worker)
        ]

    def _is_ready(self, worker: Worker) -> bool:
        obeys = worker.generation == self._record.generation
        return obeys and worker.phase in (WorkerPhase.READY, WorkerPhase.ENDED)

    def _unparked(self) -> list[WorkerId]:
        """Members of the old world that may still have trainers of it."""
        return [
            member.worker
            for member in self._members()
            if (worker := self.job.workers.get(member.worker)) is not None and not self._is_parked(worker)
        ]

    def _is_parked(self, worker: Worker) -> bool:
        obeys = worker.generation >= self._record.generation
        return obeys and worker.phase in (WorkerPhase.PARKED, WorkerPhase.IDLE, WorkerPhase.LEAVING)

    def _all_clean(self) -> bool:
        return bool(self._members()) and all(has_finished(self.job, member) for member in self._members())

    def _world_size(self) -> int:
        return sum(len(ranks_of(member)) for member in self._members())

    def _waited_s(self) -> float:
        return self.now_s - self.job.waiting_since_s

    # Asking for what is missing

    def _store_address(self) -> StoreAddress | None:
        store = self.job.store
        generation = self._record.generation
        due = store.retry_s is not None and self.now_s >= store.retry_s
        if store.generation != generation or due:
            self.job = replace(self.job, store=Store(generation))
            self.effects.append(effects.StartStore(generation))
            return None
        return store.address

    def _assignment(self, world: Arrangement, store: StoreAddress, why: str) -> Assignment:
        spec = self.job.spec
        taken = {member.worker for member in world.members}
        idle = [worker.worker for worker in self.job.workers.values() if worker.worker not in taken]
        return Assignment(
            job=self.job.name,
            generation=self._record.generation,
            world_size=world.world_size,
            members=world.members,
            store=store,
            launch=spec.launch,
            stop_grace_s=spec.timeouts.stop_grace_s,
            why=why,
            spares=tuple(sorted(idle)),
            hyperparameters=hyperparameters(self.job, world.world_size),
            restart_count=self._record.failures,
            max_restarts=spec.failures.max,
        )

    def _save(self) -> None:
        job = self.job
        if job.record == job.saved or job.saving is not None:
            return
        if job.save_retry_s is not None and self.now_s < job.save_retry_s:
            return
        self.job = replace(job, saving=job.record, save_retry_s=None)
        self.effects.append(effects.SaveRecord(job.record))

    def _publish(self) -> None:
        if not self._is_saved() or not self._is_due(self.job.published_s):
            return
        message = self._unconfirmed()
        if message is not None:
            self.effects.append(effects.Publish(message))
            self.job = replace(self.job, published_s=self.now_s)

    def _unconfirmed(self) -> Assignment | Halt | None:
        record = self._record
        if record.phase is Phase.RESHAPING:
            return Halt(self.job.name, record.generation, record.why, self.job.spec.timeouts.stop_grace_s)
        if record.phase is Phase.FORMING and self._is_decided():
            return record.assignment
        return None

    def _release(self) -> None:
        """Repeated to each until it is gone; a worker with a tombstone is told each time that it speaks."""
        if not self._is_saved():
            return
        due = [worker for worker in self._leavers() if self._is_due(self.job.released_s.get(worker))]
        zombies = self.job.zombies
        if due or zombies:
            why = self._record.why if self._record.phase.ended else "no longer needed"
            self.effects.append(effects.Publish(Release(self.job.name, (*due, *zombies), why)))
        for worker, cluster in zombies.items():
            command = RemoveWorkers(self.job.name, (worker,), self.job.gone.get(worker, "put out"))
            self.effects.append(effects.TellCluster(cluster, command))
        told = self.job.released_s | dict.fromkeys(due, self.now_s)
        self.job = replace(self.job, released_s=told, zombies={})

    def _leavers(self) -> list[WorkerId]:
        workers = [worker for worker in self.job.workers.values() if worker.seq >= 0]
        if self._record.phase.ended:
            return [worker.worker for worker in workers]
        if self._record.phase is not Phase.RUNNING:
            return []
        members = {member.worker for member in self._members()}
        idle = [worker for worker in workers if worker.worker not in members]
        noticed = [worker.worker for worker in idle if worker.noticed is not None]
        surplus = max(0, len([*filter(_can_train, workers)]) - self._record.wanted)
        spares = sorted(worker.worker for worker in idle if _can_train(worker))
        return noticed + (spares[-surplus:] if surplus else [])

    def _tell_clusters(self) -> None:
        for name, count in self._wanted_by_cluster().items():
            cluster = self.job.clusters[name]
            if cluster.keeps == count or not self._is_due(cluster.told_s):
                continue
            self.effects.append(effects.TellCluster(name, KeepWorkers(self.job.name, count, self._template())))
            told = replace(cluster, told_s=self.now_s)
            self.job = replace(self.job, clusters={**self.job.clusters, name: told})

    def _wanted_by_cluster(self) -> dict[ClusterName, int]:
        """Evenly over the clusters that were heard, first come by name."""
        names = sorted(self.job.clusters)
        if not names:
            return {}
        wanted = 0 if self._record.phase.ended else self._record.wanted
        return dict(zip(names, shares(wanted, len(names)), strict=True))

    def _keeps(self) -> list[tuple[Cluster, int]]:
        return [(self.job.clusters[name], count) for name, count in self._wanted_by_cluster().items()]

    def _template(self) -> WorkerTemplate:
        launch = self.job.spec.launch
        return WorkerTemplate(slots=self.job.spec.workers.ranks, python=launch.python, env=launch.env)

    # Small things

    @property
    def _record(self) -> Record:
        return self.job.record

    def _set(self, **changes: Unpack[_RecordFields]) -> bool:
        """True if the phase or the world changed: then there may be more to do."""
        before = self._record
        after = structs.replace(before, **changes)
        self.job = replace(self.job, record=after, why=after.why)
        return (before.phase, before.assignment) != (after.phase, after.assignment)

    def _say(self, why: str) -> bool:
        """What the job waits for is for people: it is not worth saving."""
        self.job = replace(self.job, why=why)
        return False

    def _is_saved(self) -> bool:
        return self.job.saved == self._record

    def _is_due(self, last_s: float | None) -> bool:
        return last_s is None or self.now_s - last_s >= REPEAT_S

    def _unfinished(self) -> bool:
        return bool(
            not self._is_saved()
            or self._record.phase in (Phase.FORMING, Phase.RESHAPING)
            or self._leavers()
            or any(cluster.keeps != count for cluster, count in self._keeps())
        )


def hyperparameters(job: Job, world_size: int) -> Hyperparameters:
    given = dict(job.spec.hyperparameters)
    batch = given.pop("global_batch", None)
    rate = given.pop("learning_rate", None)
    return Hyperparameters(
        global_batch=batch if isinstance(batch, int) else None,
        shares=shares(batch, world_size) if isinstance(batch, int) else (),
        learning_rate=float(rate) if rate is not None else None,
        given=given,
    )


def describe(rank: int, code: int | None, signal: str | None, error: str | None) -> str:
    how = f"was ended by {signal}" if signal is not None else f"exited with {code}"
    return f"rank {rank} {how}" + (f": {error.strip().splitlines()[-1]}" if error and error.strip() else "")


def _can_train(worker: Worker) -> bool:
    able = worker.phase not in (WorkerPhase.WARMING, WorkerPhase.LEAVING)
    return able and worker.noticed is None and worker.slots > 0


def _allowed(failures: int) -> str:
    return "no failure is allowed" if failures == 0 else f"{failures} failures are allowed"


def _names(workers: list[WorkerId]) -> str:
    shown = ", ".join(workers[:4])
    return f"{'workers' if len(workers) > 1 else 'worker'} {shown}" + (
        f" and {len(workers) - 4} more" if len(workers) > 4 else ""
    )
