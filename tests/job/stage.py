"""A stage for job-core stories: a job, workers that speak, and a clock that moves only when told."""

from dataclasses import dataclass, field
from typing import TypeVar

from controlplane.job import events
from controlplane.job.decide import decide
from controlplane.job.effects import Announce, JobEffect, Publish, SaveRecord, StartStore, TellCluster
from controlplane.job.invariants import check
from controlplane.job.state import Job, new_job
from messages.clusters import KeepWorkers, Presence, WorkerObservation
from messages.ids import ClusterName, Epoch, Generation, JobName, Rank, WorkerId
from messages.jobs import Failures, JobSpec, Launch, Scalar, Timeouts, Workers
from messages.records import Phase
from messages.workers import Fallen, TrainerExit, TrainerStatus, WorkerPhase, WorkerStatus
from messages.worlds import Assignment, Halt, Release, StoreAddress
from tests import specs

LOCAL = ClusterName("local")
JOB = JobName("demo")
Kind = TypeVar("Kind")


def a_spec(
    *,
    workers: int = 3,
    at_least: int = 1,
    ranks: int = 1,
    replica: int = 1,
    failures: int = 2,
    hyperparameters: dict[str, Scalar] | None = None,
    settle_s: float | None = None,
    allowed: tuple[int, ...] = (),
    launch: Launch | None = None,
) -> JobSpec:
    """A spec with the delays that the stage expects."""
    return specs.a_spec(
        JOB,
        Workers(max=workers, min=at_least, ranks=ranks, settle_s=settle_s, allowed=allowed),
        launch=launch or Launch(script="train.py"),
        replica=replica,
        failures=Failures(max=failures, backoff_s=1.0, backoff_max_s=3.0),
        timeouts=Timeouts(suspect_s=5.0, ready_s=20.0, stop_grace_s=2.0),
        hyperparameters=hyperparameters or {},
    )


NEWEST = 1000
"""A number above that of each request of a test."""


@dataclass
class Stage:
    job: Job
    now_s: float = 100.0
    seqs: dict[WorkerId, int] = field(default_factory=dict)
    statuses: dict[WorkerId, WorkerStatus] = field(default_factory=dict)
    effects: list[JobEffect] = field(default_factory=list)
    """All effects so far."""
    save_at_once: bool = True
    stores_start: bool = True
    wake_at_s: float | None = None
    """Time at which the core wants to decide again."""

    @property
    def phase(self) -> Phase:
        return self.job.record.phase

    @property
    def generation(self) -> Generation:
        return self.job.record.generation

    @property
    def world(self) -> dict[str, tuple[int, ...]]:
        assignment = self.job.record.assignment
        members = assignment.members if assignment is not None else ()
        return {m.worker: tuple(range(m.first_rank, m.first_rank + m.ranks)) for m in members}

    def happens(self, event: events.JobEvent) -> list[JobEffect]:
        """Posts an event. Saves and stores are answered at once, as by a healthy bus."""
        before = self.job
        decision = decide(before, event)
        self.job, self.wake_at_s = decision.state, decision.wake_at_s
        assert check(before, self.job, decision.effects) == []
        if self.phase is not before.record.phase:
            again = decide(self.job, events.Ticked(self.now_s)).state.record
            assert (again.phase, again.assignment) == (self.phase, self.job.record.assignment), "more was due"
        asked = list(decision.effects)
        self.effects += asked
        for effect in decision.effects:
            if isinstance(effect, SaveRecord) and self.save_at_once:
                asked += self.happens(events.RecordSaved(self.now_s, effect.record))
            elif isinstance(effect, StartStore) and self.stores_start:
                address = StoreAddress("127.0.0.1", 29400 + effect.generation)
                asked += self.happens(events.StoreStarted(self.now_s, effect.generation, address))
        return asked

    def wait(self, seconds: float) -> list[JobEffect]:
        self.now_s += seconds
        return self.happens(events.Ticked(self.now_s))

    def reports_status(
        self,
        worker: str,
        phase: WorkerPhase,
        *,
        generation: int | None = None,
        exits: tuple[TrainerExit, ...] = (),
        fallen: tuple[Fallen, ...] = (),
        slots: int | None = None,
        seq: int | None = None,
        trainers: tuple[TrainerStatus, ...] = (),
        notice_s: float | None = None,
        step: int | None = None,
        checkpoints: int = 0,
    ) -> list[JobEffect]:
        name = WorkerId(worker)
        self.seqs[name] = self.seqs.get(name, 0) + 1 if seq is None else seq
        status = a_status(
            worker,
            phase,
            seq=self.seqs[name],
            generation=self.generation if generation is None else generation,
            exits=exits,
            fallen=fallen,
            slots=self.job.spec.workers.ranks if slots is None else slots,
            trainers=trainers,
            notice_s=notice_s,
            step=step,
            checkpoints=checkpoints,
        )
        self.statuses[name] = status
        return self.happens(events.WorkerSpoke(self.now_s, status))

    def join(self, *workers: str) -> list[JobEffect]:
        starting = [an_observation(worker, Presence.STARTING) for worker in workers]
        effects = self.reports(*starting, *self.observations(), keeps=self.job.record.wanted)
        for worker in workers:
            effects += self.reports_status(worker, WorkerPhase.IDLE, generation=0)
        return effects

    def observations(self, **silent_s: float) -> list[WorkerObservation]:
        """Observations of all workers as last heard, with the seconds of silence of those named."""
        return [
            WorkerObservation(
                worker,
                JOB,
                Presence.SILENT if worker in silent_s else Presence.ALIVE,
                silent_s=silent_s.get(worker, 0.0),
                status=self.statuses[worker],
            )
            for worker in self.job.workers
            if worker in self.statuses
        ]

    def ready(self, *workers: str) -> list[JobEffect]:
        return [effect for worker in workers for effect in self.reports_status(worker, WorkerPhase.READY)]

    def parked(self, *workers: str) -> list[JobEffect]:
        return [effect for worker in workers for effect in self.reports_status(worker, WorkerPhase.PARKED)]

    def exits(self, worker: str, *exits: TrainerExit) -> list[JobEffect]:
        return self.reports_status(worker, WorkerPhase.ENDED, exits=exits)

    def reports(
        self, *observations: WorkerObservation, keeps: int | None = None, incarnation: str = "a1"
    ) -> list[JobEffect]:
        kept = self.job.record.wanted if keeps is None else keeps
        steps = (observation.status.step or 0 for observation in observations if observation.status is not None)
        report = events.ClusterReported(
            self.now_s, LOCAL, incarnation, kept, max(steps, default=0), observations, is_whole=True
        )
        return self.happens(report)

    def sees_gone(self, worker: str, why: str = "SIGKILL") -> list[JobEffect]:
        others = [observation for observation in self.observations() if observation.worker != worker]
        return self.reports(WorkerObservation(WorkerId(worker), JOB, Presence.GONE, why=why), *others)

    def runs(self, *workers: str) -> "Stage":
        self.join(*workers)
        self.ready(*workers)
        assert self.phase is Phase.RUNNING
        return self


def a_stage(spec: JobSpec | None = None) -> Stage:
    return Stage(new_job(spec or a_spec(), epoch=Epoch(1), at_s=100.0, submitted_at=0.0))


def a_status(
    worker: str,
    phase: WorkerPhase,
    *,
    seq: int = 1,
    generation: int = 0,
    exits: tuple[TrainerExit, ...] = (),
    fallen: tuple[Fallen, ...] = (),
    slots: int = 1,
    trainers: tuple[TrainerStatus, ...] = (),
    notice_s: float | None = None,
    step: int | None = None,
    checkpoints: int = 0,
) -> WorkerStatus:
    return WorkerStatus(
        worker=WorkerId(worker),
        cluster=LOCAL,
        job=JOB,
        seq=seq,
        phase=phase,
        generation=Generation(generation),
        exits=exits,
        fallen=fallen,
        slots=slots,
        trainers=trainers,
        notice_s=notice_s,
        step=step,
        checkpoints=checkpoints,
    )


def an_observation(worker: str, presence: Presence) -> WorkerObservation:
    return WorkerObservation(WorkerId(worker), JOB, presence)


def clean(rank: int) -> TrainerExit:
    return TrainerExit(Rank(rank), code=0)


def failed(rank: int, *tail: str, peer_lost: bool = False) -> TrainerExit:
    return TrainerExit(Rank(rank), code=1, tail=tail, peer_lost=peer_lost)


def published(effects: list[JobEffect], kind: type[Kind]) -> list[Kind]:
    return [e.message for e in effects if isinstance(e, Publish) and isinstance(e.message, kind)]


def halts(effects: list[JobEffect]) -> list[Halt]:
    return published(effects, Halt)


def assignments(effects: list[JobEffect]) -> list[Assignment]:
    return published(effects, Assignment)


def released(effects: list[JobEffect]) -> set[str]:
    return {worker for release in published(effects, Release) for worker in release.workers}


def kept(effects: list[JobEffect]) -> list[int]:
    return [e.command.count for e in effects if isinstance(e, TellCluster) and isinstance(e.command, KeepWorkers)]


def reported(effects: list[JobEffect], kind: str) -> list[Announce]:
    return [effect for effect in effects if isinstance(effect, Announce) and effect.kind == kind]
