"""What the trainers really do, unknown to the simulated system: the truth against which claims are checked.

A stand-in for a script with checkpoints: its ranks meet at the store, take steps together, fail when a peer dies, and
exit with 0 when the last step is done.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from messages.ids import NO_GENERATION, Generation, Rank, WorkerId
from messages.workers import TrainerExit
from tests.simulation.clockwork import Broken, Clockwork

STEP_S = 0.4
CHECKPOINT_EVERY = 5


@dataclass
class Trainer:
    generation: Generation
    rank: Rank
    world_size: int
    worker: WorkerId
    exited: Callable[[TrainerExit], None]
    saved: Callable[[], None] = lambda: None
    """Called when it has written a checkpoint."""
    alive: bool = True
    clean: bool = False


@dataclass
class Training:
    clockwork: Clockwork
    steps: int
    store_serves: Callable[[Generation], bool]
    worlds: dict[Generation, dict[Rank, Trainer]] = field(default_factory=dict)
    met: set[Generation] = field(default_factory=set)
    checkpoint: int = 0
    steps_taken: int = 0
    newest_stepped: Generation = NO_GENERATION
    seen: Counter[str] = field(default_factory=Counter)
    failures: int = 0
    """Failures of the script by itself."""

    @property
    def alive(self) -> list[Trainer]:
        return [trainer for world in self.worlds.values() for trainer in world.values() if trainer.alive]

    def start(self, trainer: Trainer) -> None:
        world = self.worlds.setdefault(trainer.generation, {})
        if trainer.rank in world:
            other = world[trainer.rank].worker
            raise Broken(f"rank {trainer.rank} of generation {trainer.generation}: {other} and {trainer.worker}")
        world[trainer.rank] = trainer
        older = [
            other for other in self.alive if other.worker == trainer.worker and other.generation < trainer.generation
        ]
        if older:
            raise Broken(f"{trainer.worker} runs generations {older[0].generation} and {trainer.generation} at once")
        if len(world) == trainer.world_size and all(member.alive for member in world.values()):
            self.clockwork.after(0.2, lambda: self._meet(trainer.generation))

    def end(self, trainer: Trainer) -> None:
        """Ends a trainer by a signal: it sends nothing more, but its peers notice."""
        if trainer.alive:
            trainer.alive = False
            self._peers_notice(trainer)

    def fail(self, trainer: Trainer) -> None:
        """Ends a trainer by a failure of its own."""
        if trainer.alive:
            self.failures += 1
            self._exit(trainer, TrainerExit(trainer.rank, code=1, tail=("ValueError",)))
            self._peers_notice(trainer)

    def _meet(self, generation: Generation) -> None:
        world = self.worlds[generation]
        if not all(trainer.alive for trainer in world.values()):
            return
        if not self.store_serves(generation):
            for trainer in world.values():
                self._exit(trainer, TrainerExit(trainer.rank, code=1, peer_lost=True))
            return
        self.met.add(generation)
        self.clockwork.after(STEP_S, lambda: self._step(generation, self.checkpoint))

    def _step(self, generation: Generation, step: int) -> None:
        world = self.worlds[generation]
        if not all(trainer.alive for trainer in world.values()):
            return
        if generation < self.newest_stepped:
            raise Broken(f"generation {generation} took a step after generation {self.newest_stepped} had")
        self.newest_stepped = generation
        self.steps_taken += 1
        if (step + 1) % CHECKPOINT_EVERY == 0 or step + 1 == self.steps:
            self.checkpoint = step + 1
            world[Rank(0)].saved()
        if step + 1 >= self.steps:
            for trainer in world.values():
                self.clockwork.after(self.clockwork.chance.uniform(0, 0.05), partial(self._finish, trainer))
            return
        self.clockwork.after(STEP_S, lambda: self._step(generation, step + 1))

    def _finish(self, trainer: Trainer) -> None:
        trainer.clean = trainer.alive
        self._exit(trainer, TrainerExit(trainer.rank, code=0))

    def _peers_notice(self, lost: Trainer) -> None:
        if lost.generation not in self.met or self.checkpoint >= self.steps:
            return
        for peer in self.worlds[lost.generation].values():
            if peer.alive:
                delay_s = self.clockwork.chance.uniform(0.005, 0.05)
                witness = TrainerExit(peer.rank, code=1, peer_lost=True)
                self.clockwork.after(delay_s, partial(self._exit, peer, witness))

    def _exit(self, trainer: Trainer, how: TrainerExit) -> None:
        if trainer.alive:
            trainer.alive = False
            trainer.exited(how)
