"""A stage whose workers have trainers that live through changes, obey what was published and tell what they have."""

from dataclasses import dataclass, field

from msgspec import structs

from controlplane.job import events
from controlplane.job.effects import JobEffect, Publish
from controlplane.job.state import adopted_job, new_job
from messages.ids import Epoch, Rank, WorkerId
from messages.jobs import JobSpec
from messages.workers import Fallen, TrainerExit, TrainerStatus, WorkerPhase, WrittenCheckpoint
from messages.worlds import Assignment, HotWorld, Invite
from tests.job.stage import Stage, a_spec, published


@dataclass
class HotStage(Stage):
    trainers: dict[str, tuple[TrainerStatus, ...]] = field(default_factory=dict)

    @property
    def hot(self) -> HotWorld:
        assignment = self.job.record.assignment
        assert assignment is not None and assignment.hot is not None
        return assignment.hot

    @property
    def prepared(self) -> Assignment | None:
        return self.job.record.prepared

    def trains(self, *workers: str, done: int = 5) -> "HotStage":
        """Their first world: forked, attached and in it."""
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
        return self.says(worker, phase, generation=generation, exits=exits, fallen=fallen, trainers=trainers)

    def falls(self, worker: str, exit_: TrainerExit) -> list[JobEffect]:
        """Its only trainer ends by itself, and its agent has heard the halt before."""
        fallen = (Fallen(self.generation, 0, exit_),)
        return self.tell(worker, phase=WorkerPhase.PARKED, generation=self.generation, fallen=fallen)

    def sign(self, worker: str) -> list[JobEffect]:
        """Its trainers see that a collective of their world failed."""
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
        """Their trainers have saved and ended."""
        return [effect for worker in workers for effect in self.tell(worker, phase=WorkerPhase.PARKED)]

    def writes(self, worker: str, checkpoint: WrittenCheckpoint) -> list[JobEffect]:
        name = WorkerId(worker)
        self.seqs[name] += 1
        told = structs.replace(self.statuses[name], seq=self.seqs[name], checkpoint=checkpoint)
        self.statuses[name] = told
        return self.happens(events.WorkerSpoke(self.now_s, told))

    def is_seen_alive(self, worker: str) -> list[JobEffect]:
        """It has not parked, but its agent says that its trainers run."""
        slow = [structs.replace(trainer, parking=self.generation) for trainer in self.trainers[worker]]
        return self.tell(worker, *slow, phase=WorkerPhase.STOPPING, generation=self.generation - 1)

    def enters(self, *workers: str) -> list[JobEffect]:
        """They go over to the prepared world, or come into the repaired one."""
        world = self.prepared or self.job.record.assignment
        assert world is not None and world.hot is not None
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
                    done=max(trainer.done, world.hot.resume),
                    active=world.hot.previous[member.first_rank + trainer.local_rank] >= 0,
                )
                for trainer in self.trainers[member.worker]
                if trainer.local_rank < member.ranks
            ]
            effects += self.tell(member.worker, *entered, generation=world.generation)
        return effects

    def catches_up(self, worker: str) -> list[JobEffect]:
        return self.tell(worker, *(structs.replace(trainer, active=True) for trainer in self.trainers[worker]))

    def attaches(self, worker: str) -> list[JobEffect]:
        """Invited, and warm."""
        slots = self.job.spec.workers.ranks
        waiting = [TrainerStatus(local, waits="to be taken in") for local in range(slots)]
        return self.tell(worker, *waiting, phase=WorkerPhase.IDLE)

    def notices(self, worker: str, remaining_s: float = 15.0) -> list[JobEffect]:
        return self.happens(events.WorkerNoticeCame(self.now_s, WorkerId(worker), remaining_s, "signal"))

    def heir(self) -> "HotStage":
        """Another master that knows what is in KV and hears the same workers."""
        assert self.job.storage.saved is not None
        job = adopted_job(self.job.spec, self.job.storage.saved, epoch=Epoch(2), at_s=500.0)
        return HotStage(
            job,
            now_s=500.0,
            seqs=self.seqs,
            statuses=dict(self.statuses),
            trainers=dict(self.trainers),
        )


def a_hot_stage(spec: JobSpec | None = None) -> HotStage:
    return HotStage(new_job(spec or a_spec(), epoch=Epoch(1), at_s=100.0, submitted_at=0.0))


def a_hot_job(*workers: str, at_least: int = 1, wanted: int | None = None, ranks: int = 1) -> HotStage:
    return a_hot_stage(a_spec(workers=wanted or len(workers), at_least=at_least, ranks=ranks)).trains(*workers)


def invited(effects: list[JobEffect]) -> set[str]:
    return {worker for invite in published(effects, Invite) for worker in invite.workers}


def published_kinds(effects: list[JobEffect]) -> list[str]:
    return [type(effect.message).__name__ for effect in effects if isinstance(effect, Publish)]
