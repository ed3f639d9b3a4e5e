"""A stage whose workers have live trainers, obey published messages and report their state."""

from dataclasses import dataclass, field

from msgspec import structs

from controlplane.job import events
from controlplane.job.effects import JobEffect, Publish
from controlplane.job.state import adopted_job, new_job
from messages.ids import Epoch, Rank, WorkerId
from messages.jobs import JobSpec
from messages.workers import Fallen, TrainerExit, TrainerStatus, WorkerPhase, WrittenCheckpoint
from messages.worlds import Assignment, Invite, LiveWorld
from tests.job.stage import Stage, a_spec, published


@dataclass
class LiveStage(Stage):
    trainers: dict[str, tuple[TrainerStatus, ...]] = field(default_factory=dict)

    @property
    def live(self) -> LiveWorld:
        assignment = self.job.record.assignment
        assert assignment is not None and assignment.live is not None
        return assignment.live

    @property
    def prepared(self) -> Assignment | None:
        return self.job.record.prepared

    def trains(self, *workers: str, done: int = 5) -> "LiveStage":
        """Starts the first world: trainers are forked, attached and in it."""
        self.runs(*workers)
        for worker in workers:
            self.tell(worker, *self._fresh(worker, done=done))
        return self

    def _fresh(self, worker: str, done: int) -> list[TrainerStatus]:
        return [
            TrainerStatus(local, Rank(rank), self.generation, done=done, held=((rank, rank + 1),), active=True)
            for local, rank in enumerate(self.world[worker])
        ]

    def tell(
        self,
        worker: str,
        *trainers: TrainerStatus,
        phase: WorkerPhase = WorkerPhase.READY,
        generation: int | None = None,
        exits: tuple[TrainerExit, ...] = (),
        fallen: tuple[Fallen, ...] = (),
    ) -> list[JobEffect]:
        self.trainers[worker] = trainers
        return self.reports_status(worker, phase, generation=generation, exits=exits, fallen=fallen, trainers=trainers)

    def falls(self, worker: str, exit_: TrainerExit) -> list[JobEffect]:
        """Ends a worker's only trainer by itself, after its agent has received the halt."""
        fallen = (Fallen(self.generation, 0, exit_),)
        return self.tell(worker, phase=WorkerPhase.PARKED, generation=self.generation, fallen=fallen)

    def sign(self, worker: str) -> list[JobEffect]:
        """Reports that a collective of the worker's world failed."""
        broken = [
            structs.replace(trainer, broken=trainer.generation, parked=trainer.generation + 1)
            for trainer in self.trainers[worker]
        ]
        return self.tell(worker, *broken)

    def parks(self, *workers: str, done: int | None = None, **changes: object) -> list[JobEffect]:
        effects = []
        for worker in workers:
            parked = [
                structs.replace(
                    trainer, parked=self.generation, **(changes if done is None else {**changes, "done": done})
                )
                for trainer in self.trainers[worker]
            ]
            effects += self.tell(worker, *parked, phase=WorkerPhase.PARKED)
        return effects

    def ends(self, *workers: str) -> list[JobEffect]:
        """Reports that their trainers saved and ended."""
        return [effect for worker in workers for effect in self.tell(worker, phase=WorkerPhase.PARKED)]

    def writes(self, worker: str, checkpoint: WrittenCheckpoint) -> list[JobEffect]:
        name = WorkerId(worker)
        self.seqs[name] += 1
        reported = structs.replace(self.statuses[name], seq=self.seqs[name], checkpoint=checkpoint)
        self.statuses[name] = reported
        return self.happens(events.WorkerSpoke(self.now_s, reported))

    def is_seen_alive(self, worker: str) -> list[JobEffect]:
        """Reports that the trainers run but have not parked."""
        slow = [structs.replace(trainer, parking=self.generation) for trainer in self.trainers[worker]]
        return self.tell(worker, *slow, phase=WorkerPhase.STOPPING, generation=self.generation - 1)

    def enters(self, *workers: str) -> list[JobEffect]:
        """Switches the workers to the prepared world, or to the repaired one."""
        world = self.prepared or self.job.record.assignment
        assert world is not None and world.live is not None
        effects = []
        for member in world.members:
            if member.worker not in workers:
                continue
            entered = [
                structs.replace(
                    trainer,
                    rank=Rank(member.first_rank + trainer.local_rank),
                    generation=world.generation,
                    parked=world.generation,
                    done=max(trainer.done, world.live.resume),
                    active=world.live.previous[member.first_rank + trainer.local_rank] >= 0,
                )
                for trainer in self.trainers[member.worker]
                if trainer.local_rank < member.ranks
            ]
            effects += self.tell(member.worker, *entered, generation=world.generation)
        return effects

    def catches_up(self, worker: str) -> list[JobEffect]:
        return self.tell(worker, *(structs.replace(trainer, active=True) for trainer in self.trainers[worker]))

    def attaches(self, worker: str) -> list[JobEffect]:
        """Attaches the trainers of an invited worker."""
        slots = self.job.spec.workers.ranks
        waiting = [TrainerStatus(local, waits="to join") for local in range(slots)]
        return self.tell(worker, *waiting, phase=WorkerPhase.IDLE)

    def notices(self, worker: str, remaining_s: float = 15.0) -> list[JobEffect]:
        return self.happens(events.WorkerNoticeCame(self.now_s, WorkerId(worker), remaining_s, "signal"))

    def heir(self) -> "LiveStage":
        """Another master that reads KV and hears the same workers."""
        assert self.job.storage.saved is not None
        job = adopted_job(self.job.spec, self.job.storage.saved, epoch=Epoch(2), at_s=500.0)
        return LiveStage(
            job,
            now_s=500.0,
            seqs=self.seqs,
            statuses=dict(self.statuses),
            trainers=dict(self.trainers),
        )


def a_live_stage(spec: JobSpec | None = None) -> LiveStage:
    return LiveStage(new_job(spec or a_spec(), epoch=Epoch(1), at_s=100.0, submitted_at=0.0))


def a_live_job(*workers: str, at_least: int = 1, wanted: int | None = None, ranks: int = 1) -> LiveStage:
    return a_live_stage(a_spec(workers=wanted or len(workers), at_least=at_least, ranks=ranks)).trains(*workers)


def invited(effects: list[JobEffect]) -> set[str]:
    return {worker for invite in published(effects, Invite) for worker in invite.workers}


def published_kinds(effects: list[JobEffect]) -> list[str]:
    return [type(effect.message).__name__ for effect in effects if isinstance(effect, Publish)]
