"""The systems for a job whose budget runs out and is raised again, at any moment of a change.

Like the master's keeper, a loop checks the budget every second and tells the job until it has acted. After the faults,
a last pause must leave no worker behind, and with more budget the job must continue to its end.
"""

from collections.abc import Callable
from functools import partial

from controlplane.job import events as job_events
from messages.criteria import WhenSpent
from messages.records import Phase
from tests.simulation.clockwork import Broken
from tests.simulation.live_system import LiveSystem
from tests.simulation.system import HEAL_S, System
from tests.simulation.training import STEP_S

PERIOD_S = 1.0
WATCH_S = 0.004
WATCH_FOR_S = 15.0


class Purse:
    """The money of the job, and the loop that tells the job."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.empty = False
        self.drained = False
        """True after the last pause, until the end."""
        system.clockwork.after(PERIOD_S, self._look)
        system.clockwork.after(system.clockwork.faults.until_s - system.clockwork.now_s, self._drain)

    def run_out(self, name: str) -> None:
        if self._system.clockwork.unkind and not self.empty:
            self._system.clockwork.made[name] += 1
            self._system.clockwork.tell(f"FAULT: {name}")
            self.empty = True
            self._tell()
            self._system.clockwork.after(self._system.clockwork.chance.choice((0.05, 0.5, 2.0, 10.0)), self._refill)

    def fill(self) -> None:
        self.empty = False
        self._tell()

    def _refill(self) -> None:
        if not self.drained:
            self.fill()

    def _drain(self) -> None:
        self.empty = self.drained = True
        self._tell()

    def _look(self) -> None:
        self._tell()
        self._system.clockwork.after(PERIOD_S, self._look)

    def _tell(self) -> None:
        now_s = self._system.clockwork.now_s
        for term in self._system.terms:
            record = term.job.record if term.job is not None else None
            if not term.alive or record is None or (record.paused is not None) == self.empty:
                continue
            if self.empty:
                term.hear(partial(job_events.BudgetReached, now_s, WhenSpent.PAUSE, "so it is", record))
            else:
                term.hear(partial(job_events.BudgetFreed, now_s, WhenSpent.PAUSE))


class Pausing(System):
    """A mixin that adds pauses to either system."""

    def _plan_faults(self) -> None:
        super()._plan_faults()
        self.purse = Purse(self)
        clockwork = self.clockwork
        for _ in range(clockwork.chance.randint(1, 4)):
            at_s = clockwork.chance.uniform(1, clockwork.faults.until_s - clockwork.now_s)
            name, when = clockwork.chance.choice(self._moments())
            clockwork.after(at_s, partial(self._run_out_when, name, when, WATCH_FOR_S))

    def _moments(self) -> list[tuple[str, Callable[[], bool]]]:
        return [
            ("paused", lambda: True),
            ("paused while a world is formed", lambda: self._is_in(Phase.FORMING)),
            ("paused while a world is parked", lambda: self._is_in(Phase.RESHAPING)),
        ]

    def _is_in(self, phase: Phase) -> bool:
        term = self._leader().term
        return term is not None and term.alive and term.job is not None and term.job.record.phase is phase

    def _run_out_when(self, name: str, when: Callable[[], bool], left_s: float) -> None:
        if when():
            self.purse.run_out(name)
        elif left_s > 0:
            self.clockwork.after(WATCH_S, partial(self._run_out_when, name, when, left_s - WATCH_S))

    def _run_to_the_end(self) -> None:
        clockwork = self.clockwork
        if not clockwork.run_until(lambda: self._ended or self.purse.drained, clockwork.faults.until_s + HEAL_S):
            raise Broken("the faults did not stop")
        if not self._ended:
            if not clockwork.run_until(lambda: self._ended or self._rests(), clockwork.now_s + HEAL_S):
                left = [worker.id for worker in self.workers.values() if worker.alive]
                raise Broken(f"paused {HEAL_S:g} s ago, and not all have gone: {left}")
            self.purse.fill()
        limit_s = clockwork.now_s + HEAL_S + self.training.steps * STEP_S
        if not clockwork.run_until(lambda: self._ended and self.nothing_left(), limit_s):
            raise Broken(f"has not ended {HEAL_S:g} s after it could go on: {self.stored and self.stored.why}")

    def _rests(self) -> bool:
        return self.stored is not None and self.stored.rests and self.nothing_left()


class PausingLive(Pausing, LiveSystem):
    def _moments(self) -> list[tuple[str, Callable[[], bool]]]:
        return [
            *super()._moments(),
            ("paused while a world is prepared", self._is_preparing),
            ("paused when a repair was decided", self._is_repairing),
            ("paused when a repair was decided", self._is_repairing),
        ]
