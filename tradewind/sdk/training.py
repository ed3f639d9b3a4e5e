"""The training thread's part: compute, sum, apply; and, when the world changes, what it takes to go on in the next."""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from tradewind.protocol.steps import StepsCounted
from tradewind.protocol.trainer import Assign, Ranges
from tradewind.sdk import control_words
from tradewind.sdk.agent.reports import Reports
from tradewind.sdk.buckets import Gradients
from tradewind.sdk.certificate import Certificate, Digest
from tradewind.sdk.checkpoints import Saving
from tradewind.sdk.diagnostics import Faults, Trace, say
from tradewind.sdk.groups.group import Built
from tradewind.sdk.joining import Joining
from tradewind.sdk.loader import Loader
from tradewind.sdk.meter import Lap, Meter
from tradewind.sdk.nonfinite import Nonfinite, NonfiniteStep
from tradewind.sdk.patience import Patience
from tradewind.sdk.samples import Order
from tradewind.sdk.seeds import seed_all
from tradewind.sdk.starting import Starting
from tradewind.sdk.stopping import Ending, Parting, remark_on_leaving
from tradewind.sdk.trainer.shares import count, merged, split, without
from tradewind.sdk.trainer.shell import TrainerShell
from tradewind.sdk.trainer.state import World
from tradewind.sdk.training_state.training_state import TrainingState
from tradewind.sdk.transfer.serving import Serving
from tradewind.sdk.update import Applying

CLOSING_S: Final = 30.0


class PeerLost(RuntimeError):
    """Outside of Tradewind nobody can form another world."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a training is made of."""

    member: TrainerShell
    gradients: Gradients
    loader: Loader
    order: Order
    state: TrainingState
    applying: Applying
    scaler: GradScaler | None
    certificate: Certificate
    saving: Saving | None
    starting: Starting
    reports: Reports
    serving: Serving
    joining: Joining
    parting: Parting
    faults: Faults
    trace: Trace
    ending: Ending
    nonfinite: Nonfinite
    seed: int
    most_samples: int
    """That are handed out at once."""
    watched: bool
    """A worker-agent is there: the world may change."""


class Training:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._member = parts.member
        self._gradients = parts.gradients
        self._patience = Patience()
        parts.member.step_s = lambda: self._patience.step_s
        self._computed: Ranges = ()
        """Of the present step: the samples whose gradients autograd has left in the model."""
        self._digest = Digest()
        self._loss_sum = 0.0
        self._weight = 0.0
        self._owed = False
        """A batch was handed out and its gradients have not come."""
        self._meter = Meter()
        self._closing_since_s: float | None = None
        self._served = 0
        """The last generation whose joiners were sent the state."""

    @property
    def loss(self) -> float | None:
        return self._parts.applying.loss

    @property
    def step(self) -> int:
        return self._member.done

    @property
    def world(self) -> World | None:
        return self._member.world

    def run(self) -> Generator[Any, None, None]:
        """Yields the batches that this rank has to compute, until all steps are done."""
        with self._parts.applying.alone():
            self._change_world()
            try:
                while True:
                    todo = without(self._member.held, self._computed)
                    if todo and not self._parts.parting.is_asked:
                        yield from self._compute(todo)
                    elif self._sum():
                        break
            except GeneratorExit:
                if self._parts.watched or self._present_world().size > 1:
                    remark_on_leaving(self.step)
                raise
        self._member.finish(self._parts.certificate.told())

    def backward(self, loss: Tensor) -> None:
        if self._weight == 0:
            raise RuntimeError("run.backward(loss) belongs inside the loop over the run, once for each batch")
        scaler, weighted = self._parts.scaler, loss * (self._weight / self._parts.order.batch)
        torch.autograd.backward(weighted if scaler is None else scaler.scale(weighted))
        self._loss_sum += float(loss.detach()) * self._weight
        self._weight = 0.0
        self._owed = False

    def _compute(self, todo: Ranges) -> Generator[Any, None, None]:
        """Hands out the first part of what is to be done; autograd adds up the gradients of the parts."""
        parts, step, rank = self._parts, self._member.done, self._rank
        part, rest = split(todo, parts.most_samples)
        reading = parts.loader.read(step, part)
        self._expect(step, rest)
        self._weight = float(count(part))
        self._owed = True
        # Not on who computes it: random numbers depend on the seed, the step and the first sample.
        seed_all(self._gradients.device, parts.seed, step, part[0][0])
        parts.faults("compute", rank, step)
        if not self._computed:
            self._meter.hand_out()
        before = self._gradients.some() if self._computed else None
        yield reading.batch
        if self._owed:
            raise RuntimeError(
                "a batch was taken and run.backward(loss) was not called for it: its samples would be lost"
            )
        if not self._gradients.grew_from(before):
            raise RuntimeError(
                "the gradients of this step were cleared before they were summed: take zero_grad() out of the loop, "
                "the run does that after each step"
            )
        self._digest += Digest.of(reading.indices)
        self._computed = merged((*self._computed, *part))

    def _sum(self) -> bool:
        """Sums the present step over all ranks and applies it. True when the run is over."""
        parts, member, gradients = self._parts, self._member, self._gradients
        built = member.start_collective()
        if built is None:
            self._change_world()
            return False
        self._serve_joiners()
        step, world = member.done, self._present_world()
        closing = step >= member.steps
        gradients.gather(step) if not closing else gradients.clear(step)
        bad = gradients.not_finite(step) if not closing and not parts.nonfinite.scaled else None
        flat = gradients.buffer(step)[: gradients.tail_begins + control_words.size(world.size)]
        control_words.write(gradients.tail(step), self._own_tail(world, step), world.rank, bad)
        parts.faults("before_sum", world.rank, step)
        self._meter.begin_sum()
        work = built.group.sum(flat)
        parts.faults("in_sum", world.rank, step)
        done = built.group.finish(work, member.is_halted, self._on_wait)
        if not done:
            self._leave_behind(built, work, step)
        agreed = control_words.read(flat[gradients.tail_begins :], world.size) if done else None
        switched = member.summed(agreed, counts=not closing)
        if agreed is None:
            parts.trace("fell_out", world.rank, world.generation, step)
            return False
        parts.faults("after_sum", world.rank, step)
        if closing:
            return self._is_over(agreed)
        self._commit(step, agreed, world)
        if switched:
            self._after_switch()
        elif all(agreed.active):
            parts.serving.forget()
        return False

    def _own_tail(self, world: World, step: int) -> control_words.Own:
        ready = self._member.ready_for()
        return control_words.Own(
            ready=ready - world.generation if ready else 0,
            digest=self._digest,
            loss_sum=self._loss_sum,
            active=world.is_active,
            step=step if world.is_first else None,
            stops=self._parts.ending.asked,
            over=step >= self._member.steps,
        )

    def _commit(self, step: int, agreed: control_words.Agreed, world: World) -> None:
        parts, lap = self._parts, self._meter.end_sum()
        if agreed.step != step:
            raise RuntimeError(f"ranks disagree about the step: {agreed.step} is not {step}")
        parts.certificate.check(step, agreed.digest, self._expected(step))
        try:
            self._apply(step, agreed)
        except NonfiniteStep:
            self._report(step, agreed, world, lap)
            parts.reports.close()
            raise
        self._report(step, agreed, world, lap)
        if world.is_first:
            parts.nonfinite.warn(step, agreed)
        self._forget_step()
        self._patience.took(lap.seconds)
        parts.trace("step", world.rank, world.generation, step)
        parts.faults("applied", world.rank, step)
        self._expect(self._member.done, self._member.held)
        self._save(step, world)

    def _report(self, step: int, agreed: control_words.Agreed, world: World, lap: Lap) -> None:
        certificate = self._parts.certificate
        counted = StepsCounted(certificate.nonfinite, certificate.skipped)
        self._parts.reports.add(step, agreed.loss, self._digest.count, world.generation, world.rank, lap, counted)

    def _apply(self, step: int, agreed: control_words.Agreed) -> None:
        self._parts.serving.wait_until_copied()
        self._parts.applying(step, agreed)
        self._parts.serving.applied(step + 1)

    def _forget_step(self) -> None:
        self._computed = ()
        self._digest = Digest()
        self._loss_sum = 0.0

    def _expect(self, step: int, todo: Ranges) -> None:
        if todo:
            self._parts.loader.expect(step, split(todo, self._parts.most_samples)[0])

    def _is_over(self, agreed: control_words.Agreed) -> bool:
        """Everybody has the last step; whoever is still joining gets the rest of the state first, within bounds."""
        self._closing_since_s = self._closing_since_s or time.monotonic()
        patient = time.monotonic() - self._closing_since_s < CLOSING_S
        if not all(agreed.active) and patient:
            time.sleep(0.005)
            return False
        self._parts.reports.close()
        if self._member.steps < self._parts.ending.planned and self._present_world().is_first:
            say(f"the run ends after step {self.step - 1}, as its script asked; steps done: {self.step}")
        if self._parts.saving is not None and self._present_world().is_first:
            self._parts.saving.close(self.step, self._parts.state.payload)
        return True

    # Changes of the world.

    def _change_world(self) -> None:
        """Waits for the next world and does what it takes to be in it."""
        parts, member = self._parts, self._member
        if not parts.watched and member.world is not None:
            raise PeerLost("Connection closed by peer: a rank of this world is gone")
        self._meter.disturb()
        before = member.world
        with parts.parting.saves(self._save_last):
            assign = member.take_up()
        world = self._present_world()
        parts.trace("entered", world.rank, world.generation, member.done, entry=assign.entry)
        parts.faults("repair" if assign.entry == "repair" else "join_entered", world.rank, member.done)
        if assign.entry == "start":
            self._start()
        elif not world.is_active:
            self._join(assign)
        else:
            self._repair(assign, before)

    def _repair(self, assign: Assign, before: World | None) -> None:
        if before is not None and before.is_whole_in(assign):
            self._patience.was_wrong()
        if not self._member.keeps_gradients:
            self._forget_step()
            self._gradients.drop()
        if assign.laggards:
            self._hand_on_last_sum(assign)

    def _hand_on_last_sum(self, assign: Assign) -> bool:
        """One who has the last sum gives it to those who miss it; then all are at the same step, bit for bit."""
        member, gradients = self._member, self._gradients
        last = assign.resume - 1
        built = member.start_collective(last)
        if built is None:
            return False
        buffer = gradients.buffer(last)
        sent = buffer if assign.rank == assign.source else torch.empty_like(buffer)
        self._parts.faults("catching_up", assign.rank, last)
        work = built.group.broadcast(sent, assign.source)
        done = built.group.finish(work, member.is_halted, self._on_wait)
        if not done:
            built.group.leave_behind(sent)
        if not member.ended_collective(ok=done):
            return False
        if self._present_world().is_active and member.done < assign.resume:
            buffer.copy_(sent)
            agreed, world = control_words.read(gradients.tail(last), control_words.RANKS), self._present_world()
            member.caught_up(assign.resume, agreed)
            self._parts.certificate.check(last, agreed.digest, self._expected(last))
            self._apply(last, agreed)
            self._save(last, world)
            self._parts.trace("caught_up", assign.rank, assign.generation, last)
        return True

    def _start(self) -> None:
        parts, member = self._parts, self._member
        built = member.start_collective()
        if built is None:
            return
        first = parts.starting.agree(built.group, self._present_world(), member.is_halted)
        if member.ended_collective(ok=first is not None) and first is not None:
            member.started(first)
            parts.starting.tell(first, parts.ending.planned)
            self._meter.begin()

    def _join(self, assign: Assign) -> None:
        """Enters without the state and with nothing to compute; becomes one of the others when it is level."""
        if assign.laggards and not self._hand_on_last_sum(assign):
            return
        self._forget_step()
        self._gradients.drop()
        if self._parts.joining.run(self._on_wait):
            self._after_switch()
        else:
            self._served = self._present_world().generation  # who joins beside it gets the state from the others
        self._meter.begin()

    def _after_switch(self) -> None:
        parts, world = self._parts, self._present_world()
        self._meter.disturb()
        parts.trace("switched", world.rank, world.generation, self._member.done)
        self._member.tell()
        parts.faults("switched", world.rank, self._member.done)
        self._serve_joiners()

    def _serve_joiners(self) -> None:
        """After a switch at once. A repaired world is entered before its group is built: then with its first sum."""
        world, joiners = self._present_world(), self._member.joiners_to_serve()
        if joiners and self._served < world.generation:
            self._served = world.generation
            self._parts.serving.begin(world, joiners, self._member.done)

    def _save(self, step: int, before: World) -> None:
        """Whoever was the first may still have a checkpoint of the step before, also if it leaves with this one."""
        saving = self._parts.saving
        if saving is not None and (before.is_first or self._present_world().is_first):
            saving.committed(step, self._parts.state.payload)

    def _save_last(self) -> None:
        saving, world = self._parts.saving, self._member.world
        if saving is not None and world is not None and world.is_first and self.step > 0:
            saving.save_now(self.step, self._parts.state.payload)

    def _expected(self, step: int) -> Digest:
        return Digest.of(self._parts.order.indices(step))

    def _leave_behind(self, built: Built, work: Any, step: int) -> None:
        if work is not None and not work.is_completed():
            built.group.leave_behind(self._gradients.give_up(step))

    def _on_wait(self, waited_s: float) -> None:
        if self._parts.watched and waited_s > self._patience.limit_s:
            self._member.waits_long()

    def _present_world(self) -> World:
        world = self._member.world
        assert world is not None
        return world

    @property
    def _rank(self) -> int:
        return self._present_world().rank
