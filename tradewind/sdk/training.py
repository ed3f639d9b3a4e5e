"""The training thread: computes a step, exchanges it, and enters the next world when the current one is dead.

`tradewind/sdk/trainer/sequence.py` decides the order of the acts; this module performs each act.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from tradewind.protocol.steps import StepsCounted
from tradewind.protocol.trainer import Ranges
from tradewind.sdk.agent.reports import Reports
from tradewind.sdk.certificate import Certificate
from tradewind.sdk.checkpoints import Saving
from tradewind.sdk.data.batches import Batches
from tradewind.sdk.diagnostics import Instruments, say
from tradewind.sdk.errors import NonfiniteStep, PeerLost
from tradewind.sdk.exchange import Contribution, Exchange, Reduced
from tradewind.sdk.joining import Joining
from tradewind.sdk.starting import Starting
from tradewind.sdk.stopping import Ending, Parting, ends_early, remark_on_leaving
from tradewind.sdk.timing import Lap
from tradewind.sdk.trainer.sequence import Act, Came, acts, advance, is_over
from tradewind.sdk.trainer.shares import without
from tradewind.sdk.trainer.shell import TrainerShell
from tradewind.sdk.trainer.state import World


@dataclass(frozen=True, slots=True)
class Entrances:
    """How this rank gets the state when it enters a world."""

    starting: Starting
    joining: Joining
    watched: bool
    """True under a worker-agent: the world may change."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records of the steps: reports to the agent, checkpoints, and the certificate."""

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
        self._share: Ranges = ()
        """The part of this rank's share that is not yet computed."""

    @property
    def step(self) -> int:
        return self._trainer.done

    def run(self) -> Generator[Any, None, None]:
        """Yields the batches that this rank computes, until all steps are done."""
        with self._exchange.guarded_optimizer():
            order = acts(self._trainer.read, self._todo)
            try:
                act = next(order, None)
                while act is not None:
                    if act is Act.COMPUTE:
                        yield from self._batches.hand_out(self.step, self._share, self._current_world().rank)
                        came = None
                    else:
                        came = self._perform(act)
                    act = advance(order, came)
            except GeneratorExit:
                if self._entrances.watched or self._current_world().size > 1:
                    remark_on_leaving(self.step)
                raise
        self._trainer.finish(self._records.certificate.reported())

    def _todo(self) -> Ranges:
        parts = self._parting.is_asked
        self._share = () if parts else without(self._trainer.held, self._batches.computed)
        return self._share

    def _perform(self, act: Act) -> Came | None:
        match act:
            case Act.STEP:
                return self._take_step()
            case Act.CLOSE:
                return self._close()
            case Act.AWAIT_WORLD:
                self._await_world()
            case Act.START:
                self._start()
            case Act.HAND_ON:
                return self._hand_on()
            case Act.FORGET:
                self._batches.forget()
                self._exchange.drop_gradients()
            case Act.BEGIN_JOIN:
                self._entrances.joining.begin()
            case Act.JOIN_STEP:
                return self._entrances.joining.exchange_step()
            case Act.CATCH_UP:
                self._entrances.joining.catch_up()
            case Act.END_JOIN:
                self._exchange.leave_publishing_to_others()
                self._instruments.meter.begin()
            case Act.REPORT_SWITCH:
                self._report_switch()
            case Act.COMPUTE:
                raise RuntimeError("only the script computes")
        return None

    # A step.

    def _take_step(self) -> Came:
        step, batches = self.step, self._batches
        reduced = self._exchange.all_reduce(
            Contribution(step, batches.digest, batches.loss_sum, active=self._trainer.is_active)
        )
        if reduced is None:
            return Came.DEAD
        self._commit(step, reduced)
        return Came.SWITCHED if reduced.switched else Came.SAME

    def _close(self) -> Came:
        reduced = self._exchange.all_reduce(
            Contribution(self.step, active=self._trainer.is_active, gradients=False, over=True)
        )
        if reduced is None:
            return Came.DEAD
        self._closing_since_s = self._closing_since_s or time.monotonic()
        if not is_over(reduced.words.active, time.monotonic() - self._closing_since_s):
            time.sleep(0.005)
            return Came.SAME
        self._end()
        return Came.OVER

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

    def _end(self) -> None:
        self._records.reports.close()
        if not self._current_world().is_first:
            return
        if self._trainer.steps < self._ending.planned:
            say(ends_early(self.step))
        if self._records.saving is not None:
            self._records.saving.save_now(self.step)

    # Changes of the world.

    def _await_world(self) -> None:
        trainer, tools = self._trainer, self._instruments
        if not self._entrances.watched and trainer.world is not None:
            raise PeerLost("Connection closed by peer: this world lost a rank")
        tools.meter.disturb()
        before = trainer.world
        with self._parting.saves(self._save_last):
            assign = trainer.await_world()
        world = self._current_world()
        tools.trace("entered", world.rank, world.generation, trainer.done, entry=assign.entry)
        tools.faults("repair" if assign.entry == "repair" else "join_entered", world.rank, trainer.done)
        is_repaired = assign.entry != "start" and world.is_active
        if is_repaired and before is not None and before.is_whole_in(assign):
            tools.patience.was_wrong()

    def _hand_on(self) -> Came:
        before, assign = self.step, self._current_world().assign
        if not self._exchange.hand_on(assign):
            return Came.DEAD
        if self.step > before:
            self._save(assign.resume - 1, self._current_world())
        return Came.SAME

    def _start(self) -> None:
        first = self._exchange.agree(self._entrances.starting.agree)
        if first is not None:
            self._trainer.started(first)
            self._entrances.starting.tell(first, self._ending.planned)
            self._instruments.meter.begin()

    def _report_switch(self) -> None:
        tools, world = self._instruments, self._current_world()
        tools.meter.disturb()
        tools.trace("switched", world.rank, world.generation, self._trainer.done)
        self._trainer.report()
        tools.faults("switched", world.rank, self._trainer.done)
        self._exchange.publish()

    def _save(self, step: int, before: World) -> None:
        """Saves on the first rank before or after a switch: the former one may still have a checkpoint to write."""
        saving = self._records.saving
        if saving is not None and (before.is_first or self._current_world().is_first):
            saving.committed(step)

    def _save_last(self) -> None:
        saving, world = self._records.saving, self._trainer.world
        if saving is not None and world is not None and world.is_first and self.step > 0:
            saving.save_now(self.step)

    def _current_world(self) -> World:
        world = self._trainer.world
        assert world is not None
        return world
