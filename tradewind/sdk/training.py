"""The training thread: compute a step, exchange it, and enter the next world when the present one is over."""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

from tradewind.protocol.steps import StepsCounted
from tradewind.protocol.trainer import Assign
from tradewind.sdk.agent.reports import Reports
from tradewind.sdk.certificate import Certificate
from tradewind.sdk.checkpoints import Saving
from tradewind.sdk.control_words import Agreed
from tradewind.sdk.data.batches import Batches
from tradewind.sdk.diagnostics import Instruments, say
from tradewind.sdk.errors import NonfiniteStep, PeerLost
from tradewind.sdk.exchange import Contribution, Exchange, Reduced
from tradewind.sdk.joining import Joining
from tradewind.sdk.starting import Starting
from tradewind.sdk.stopping import Ending, Parting, remark_on_leaving
from tradewind.sdk.timing import Lap
from tradewind.sdk.trainer.shares import without
from tradewind.sdk.trainer.shell import TrainerShell
from tradewind.sdk.trainer.state import World

CLOSING_S: Final = 30.0
"""Seconds that the end of a run waits for ranks that are still joining."""


@dataclass(frozen=True, slots=True)
class Entrances:
    """How this rank gets the state when it enters a world."""

    starting: Starting
    joining: Joining
    watched: bool
    """A worker-agent is there: the world may change."""


@dataclass(frozen=True, slots=True)
class Records:
    """What outlives a step: reports to the agent, checkpoints, and the certificate."""

    reports: Reports
    saving: Saving | None
    certificate: Certificate


class Training:
    def __init__(
        self,
        trainer: TrainerShell,
        exchange: Exchange,
        batches: Batches,
        entrances: Entrances,
        records: Records,
        ending: Ending,
        instruments: Instruments,
    ) -> None:
        self._trainer = trainer
        self._exchange = exchange
        self._batches = batches
        self._entrances = entrances
        self._records = records
        self._ending = ending
        self._instruments = instruments
        self._parting = Parting(trainer.is_halted)
        self._closing_since_s: float | None = None

    @property
    def step(self) -> int:
        return self._trainer.done

    def run(self) -> Generator[Any, None, None]:
        """Yields the batches that this rank has to compute, until all steps are done."""
        with self._exchange.guarded_optimizer():
            self._change_world()
            try:
                while True:
                    todo = without(self._trainer.held, self._batches.computed)
                    if todo and not self._parting.is_asked:
                        yield from self._batches.hand_out(self.step, todo, self._present_world().rank)
                    elif self._exchange_step():
                        break
            except GeneratorExit:
                if self._entrances.watched or self._present_world().size > 1:
                    remark_on_leaving(self.step)
                raise
        self._trainer.finish(self._records.certificate.told())

    def _exchange_step(self) -> bool:
        """Exchanges the present step and commits it. True when the run is over."""
        step, batches = self.step, self._batches
        closing = step >= self._trainer.steps
        own = Contribution(
            step,
            batches.digest,
            batches.loss_sum,
            active=self._trainer.is_active,
            gradients=not closing,
            over=closing,
        )
        reduced = self._exchange.all_reduce(own)
        if reduced is None:
            self._change_world()
            return False
        if closing:
            return self._is_over(reduced.words)
        self._commit(step, reduced)
        if reduced.switched:
            self._after_switch()
        return False

    def _commit(self, step: int, reduced: Reduced) -> None:
        tools, lap = self._instruments, self._instruments.meter.end_step()
        try:
            self._exchange.commit(reduced, step)
        except NonfiniteStep:
            self._report(step, reduced, lap)
            self._records.reports.close()
            raise
        self._report(step, reduced, lap)
        self._batches.forget()
        tools.patience.took(lap.seconds)
        world = reduced.world
        tools.trace("step", world.rank, world.generation, step)
        tools.faults("applied", world.rank, step)
        self._batches.expect(self._trainer.done, self._trainer.held)
        self._save(step, world)

    def _report(self, step: int, reduced: Reduced, lap: Lap) -> None:
        certificate, world = self._records.certificate, reduced.world
        counted = StepsCounted(certificate.nonfinite, certificate.skipped)
        self._records.reports.add(
            step, reduced.words.loss, self._batches.digest.count, world.generation, world.rank, lap, counted
        )

    def _is_over(self, agreed: Agreed) -> bool:
        """Every rank has the last step; those that are still joining get the rest of the state first, within bounds."""
        self._closing_since_s = self._closing_since_s or time.monotonic()
        patient = time.monotonic() - self._closing_since_s < CLOSING_S
        if not all(agreed.active) and patient:
            time.sleep(0.005)
            return False
        self._records.reports.close()
        if not self._present_world().is_first:
            return True
        if self._trainer.steps < self._ending.planned:
            say(f"the run ends after step {self.step - 1}, as its script asked; steps done: {self.step}")
        if self._records.saving is not None:
            self._records.saving.save_now(self.step)
        return True

    # Changes of the world.

    def _change_world(self) -> None:
        """Waits for the next world and does what it takes to be in it."""
        trainer, tools = self._trainer, self._instruments
        if not self._entrances.watched and trainer.world is not None:
            raise PeerLost("Connection closed by peer: a rank of this world is gone")
        tools.meter.disturb()
        before = trainer.world
        with self._parting.saves(self._save_last):
            assign = trainer.await_world()
        world = self._present_world()
        tools.trace("entered", world.rank, world.generation, trainer.done, entry=assign.entry)
        tools.faults("repair" if assign.entry == "repair" else "join_entered", world.rank, trainer.done)
        if assign.entry == "start":
            self._start()
        elif not world.is_active:
            self._join(assign)
        else:
            self._repair(assign, before)

    def _repair(self, assign: Assign, before: World | None) -> None:
        if before is not None and before.is_whole_in(assign):
            self._instruments.patience.was_wrong()
        if not self._trainer.keeps_gradients:
            self._forget_gradients()
        if assign.laggards:
            self._hand_on(assign)

    def _hand_on(self, assign: Assign) -> bool:
        before = self.step
        if not self._exchange.hand_on(assign):
            return False
        if self.step > before:
            self._save(assign.resume - 1, self._present_world())
        return True

    def _start(self) -> None:
        first = self._exchange.agree(self._entrances.starting.agree)
        if first is not None:
            self._trainer.started(first)
            self._entrances.starting.tell(first, self._ending.planned)
            self._instruments.meter.begin()

    def _join(self, assign: Assign) -> None:
        """Enters without the state and with nothing to compute, and becomes like the other ranks when it is level."""
        if assign.laggards and not self._hand_on(assign):
            return
        self._forget_gradients()
        if self._entrances.joining.run():
            self._after_switch()
        else:
            self._exchange.leave_publishing_to_others()
        self._instruments.meter.begin()

    def _after_switch(self) -> None:
        tools, world = self._instruments, self._present_world()
        tools.meter.disturb()
        tools.trace("switched", world.rank, world.generation, self._trainer.done)
        self._trainer.report()
        tools.faults("switched", world.rank, self._trainer.done)
        self._exchange.publish()

    def _forget_gradients(self) -> None:
        self._batches.forget()
        self._exchange.drop_gradients()

    def _save(self, step: int, before: World) -> None:
        """The rank that was the first may still have a checkpoint of the step before, also if it leaves with this."""
        saving = self._records.saving
        if saving is not None and (before.is_first or self._present_world().is_first):
            saving.committed(step)

    def _save_last(self) -> None:
        saving, world = self._records.saving, self._trainer.world
        if saving is not None and world is not None and world.is_first and self.step > 0:
            saving.save_now(self.step)

    def _present_world(self) -> World:
        world = self._trainer.world
        assert world is not None
        return world
