"""The exchange of a step: collect gradients, all-reduce them with the control words, commit, publish to joining ranks.

This module contains every way in which a rank gets a step. A rank that trains adds its gradients and commits the
result. A joining rank adds zeros, records the results, and replays them when it has the state. A rank that missed the
last step gets it from one that has it. All of them commit in the same way, so their states stay the same to the last
bit.

Buckets are all-reduced one after the other, each as soon as it is filled. The last one has the control words: before
its all-reduce no rank has the step, and ranks that have its result have the same result.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import Work

from tradewind.protocol.trainer import Assign
from tradewind.sdk import control_words
from tradewind.sdk.buckets import Buckets
from tradewind.sdk.certificate import NOTHING_READ, Audit, Digest
from tradewind.sdk.control_words import Agreed, Own
from tradewind.sdk.diagnostics import Instruments
from tradewind.sdk.groups.group import Built, Group
from tradewind.sdk.stopping import Ending
from tradewind.sdk.trainer.shell import TrainerShell
from tradewind.sdk.trainer.state import World
from tradewind.sdk.transfer.serving import Serving
from tradewind.sdk.update import Applier


@dataclass(frozen=True, slots=True)
class Contribution:
    """The contribution of this rank to an all-reduce."""

    step: int
    digest: Digest = NOTHING_READ
    """Digest of the samples behind its gradients."""
    loss_sum: float = 0.0
    """The mean loss of those samples, times their number."""
    active: bool = True
    """True if this rank has the state and takes a share from now on."""
    gradients: bool = True
    """True if it adds its own gradients; otherwise it adds zeros."""
    over: bool = False
    """True if all steps are done: the ranks only agree to end."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """The result of an all-reduce. The buckets hold the gradients until the second all-reduce after it."""

    words: Agreed
    world: World
    """The world of this all-reduce."""
    switched: bool
    """True if the world changed with it."""

    @property
    def step(self) -> int:
        return self.words.step


@dataclass(frozen=True, slots=True)
class Recorded:
    """A step that a joining rank records and cannot apply yet."""

    words: Agreed
    flat: Tensor

    @property
    def step(self) -> int:
        return self.words.step


class Collectives:
    """Collectives outside of steps. Each waits until it is done, or returns False if the world is dead."""

    def __init__(self, group: Group, halted: Callable[[], bool]) -> None:
        self.rank = group.rank
        self._group = group
        self._halted = halted

    def all_reduce_max(self, values: Tensor) -> bool:
        return self._finished(self._group.all_reduce_max(values), values)

    def broadcast(self, tensor: Tensor, source: int) -> bool:
        return self._finished(self._group.broadcast(tensor, source), tensor)

    def _finished(self, work: Work | None, buffer: Tensor) -> bool:
        if self._group.finish(work, self._halted):
            return True
        self._group.leave_behind(buffer)
        return False


class Exchange:
    def __init__(
        self,
        trainer: TrainerShell,
        buckets: Buckets,
        applier: Applier,
        audit: Audit,
        serving: Serving,
        ending: Ending,
        instruments: Instruments,
    ) -> None:
        self._trainer = trainer
        self._buckets = buckets
        self._applier = applier
        self._audit = audit
        self._serving = serving
        self._ending = ending
        self._instruments = instruments
        self._waits_since_s = 0.0
        self._published = 0
        """The last generation in which this rank sent the state to joining ranks."""

    # A step.

    def all_reduce(self, own: Contribution) -> Reduced | None:
        """Adds up the gradients and the control words of all ranks. None if the world is dead."""
        trainer, tools = self._trainer, self._instruments
        built = trainer.start_collective()
        if built is None:
            return None
        self.publish()
        world = self._current_world()
        if world.is_active:
            tools.faults("before_all_reduce", world.rank, own.step)
        works = self._launch(built.group, own, world)
        if world.is_active:
            tools.faults("in_all_reduce", world.rank, own.step)
        done = self._finished(built, works)
        if not done and any(work is not None and not work.is_completed() for work in works):
            built.group.leave_behind(self._buckets.give_up(own.step))
        words = control_words.read(self._buckets.words(own.step), world.size) if done else None
        counts = own.active and words is not None and not words.over
        switched = trainer.step_reduced(words, counts=counts)
        if words is None:
            tools.trace("fell_out", world.rank, world.generation, own.step)
            return None
        if world.is_active:
            tools.faults("after_all_reduce", world.rank, own.step)
        return Reduced(words, world, switched)

    def commit(self, reduced: Reduced, step: int) -> None:
        """Checks the samples of the step, applies it, and stores the fingerprint that joining ranks must match."""
        if reduced.step != step:
            raise RuntimeError(f"the ranks all-reduced step {reduced.step}, but this rank computed step {step}")
        self._apply(reduced.words)
        if reduced.world.is_first:
            self._applier.warn(step, reduced.words)
        if not reduced.switched and all(reduced.words.active):
            self._serving.forget()

    def record(self, reduced: Reduced, slot: int) -> Recorded:
        """Copies a step from the buckets of step `slot`."""
        return Recorded(reduced.words, self._buckets.copy_of(slot, reduced.world.size))

    def replay(self, recorded: Recorded) -> None:
        self._buckets.put(recorded.step, recorded.flat)
        self._apply(recorded.words)

    def hand_on(self, assign: Assign) -> bool:
        """Broadcasts the last step to ranks that miss it, which commit it. False if the world is dead.

        Afterwards all ranks have the same step, bit for bit.
        """
        trainer, last = self._trainer, assign.resume - 1
        built = trainer.start_collective(last)
        if built is None:
            return False
        whole = self._buckets.whole(last)
        sent = whole if assign.rank == assign.source else torch.empty_like(whole)
        self._instruments.faults("catching_up", assign.rank, last)
        done = self._finished(built, [built.group.broadcast(sent, assign.source)])
        if not done:
            built.group.leave_behind(sent)
        if not trainer.ended_collective(ok=done):
            return False
        if self._current_world().is_active and trainer.done < assign.resume:
            whole.copy_(sent)
            words = control_words.read(self._buckets.words(last), control_words.RANKS)
            trainer.caught_up(assign.resume, words)
            self._apply(words)
            self._instruments.trace("caught_up", assign.rank, assign.generation, last)
        return True

    # Outside of steps.

    def agree(self, how: Callable[[Collectives, World], int | None]) -> int | None:
        """Runs collectives in the current world before its first step. None if the world is dead."""
        trainer = self._trainer
        built = trainer.start_collective()
        if built is None:
            return None
        found = how(Collectives(built.group, trainer.is_halted), self._current_world())
        return found if trainer.ended_collective(ok=found is not None) else None

    def publish(self) -> None:
        """Sends the state to the joining ranks of the current world, once for each world.

        After a switch it does so at once. Ranks enter a repaired world before its group is built: there it sends with
        the first all-reduce.
        """
        world, joining_ranks = self._current_world(), self._trainer.joining_ranks_to_serve()
        if joining_ranks and self._published < world.generation:
            self._published = world.generation
            self._serving.begin(world, joining_ranks, self._trainer.done)

    def leave_publishing_to_others(self) -> None:
        """Sends no state in this world, because this rank has just joined it."""
        self._published = self._current_world().generation

    @property
    def loss(self) -> float | None:
        """The mean loss over all samples of the step that was applied last, or is being applied."""
        return self._applier.loss

    def guarded_optimizer(self) -> AbstractContextManager[None]:
        """A context in which the script cannot step the optimizer itself."""
        return self._applier.alone()

    def drop_gradients(self) -> None:
        """Drops what this rank has computed of the current step."""
        self._buckets.drop()

    def _launch(self, group: Group, own: Contribution, world: World) -> list[Work | None]:
        """Fills the buckets and starts their all-reduces, one after the other."""
        buckets, step, works = self._buckets, own.step, []
        totals: list[Tensor] = []
        if not own.gradients:
            buckets.clear(step)
        for number in range(buckets.count):
            if own.gradients:
                buckets.collect(step, number)
                if self._applier.checks_gradients:
                    totals.append(buckets.total(step, number))
            if number == buckets.count - 1:
                self._write_words(own, world, totals)
            if number == 0:
                self._instruments.meter.begin_all_reduce()
            works.append(group.all_reduce(buckets.bucket(step, number, world.size)))
        return works

    def _write_words(self, own: Contribution, world: World, totals: Sequence[Tensor]) -> None:
        ready = self._trainer.ready_for()
        words = Own(
            ready=ready - world.generation if ready else 0,
            digest=own.digest,
            loss_sum=own.loss_sum,
            active=own.active,
            step=own.step if world.is_first else None,
            stops=self._ending.asked,
            over=own.over,
        )
        control_words.write(self._buckets.words(own.step), words, world.rank, _is_nonfinite(totals))

    def _finished(self, built: Built, works: Sequence[Any]) -> bool:
        self._waits_since_s = time.monotonic()
        return all(built.group.finish(work, self._trainer.is_halted, self._on_wait) for work in works)

    def _on_wait(self, _waited_s: float) -> None:
        """Reports a wait that takes too long, measured over all buckets of the step."""
        if time.monotonic() - self._waits_since_s > self._instruments.patience.limit_s:
            self._trainer.waits_long()

    def _apply(self, words: Agreed) -> None:
        self._audit.check(words.step, words.digest)
        self._serving.wait_until_copied()
        self._applier(words.step, words)
        self._serving.applied(words.step + 1)

    def _current_world(self) -> World:
        world = self._trainer.world
        assert world is not None
        return world


def _is_nonfinite(totals: Sequence[Tensor]) -> Tensor | bool:
    """True if the sum of all gradients is not finite: gradients whose sum overflows float32 count as not finite."""
    if not totals:
        return False
    total = reduce(torch.add, totals)
    # Reading the answer would wait for the device, so it stays there.
    return not math.isfinite(total.item()) if total.is_cpu else total.isfinite().logical_not()
