"""The owner of the job, who scales it and raises its budget when the budget has paused it."""

from typing import TYPE_CHECKING

from controlplane.budget.terms import terms_of
from controlplane.job import events as job_events
from tests.simulation.clockwork import Broken

if TYPE_CHECKING:
    from tests.simulation.masters import Term
    from tests.simulation.system import System

LOOK_S = 2.0
RELEASED_WITHIN_S = 60.0
"""Seconds after the faults stopped within which a paused job must have no machine left."""


class Owner:
    def __init__(self, system: "System") -> None:
        self._system = system
        self._clockwork = system.clockwork
        self._rests_since_s: float | None = None
        self._clockwork.after(LOOK_S, self._look)

    def scale(self) -> None:
        term, workers = self._system.leading_term, self._system.spec.workers
        if term is not None:
            wanted = self._clockwork.chance.randint(workers.min or workers.max, workers.max)
            term.hear(lambda: job_events.ScaleAsked(term.now_s, wanted))

    def _look(self) -> None:
        self._clockwork.after(LOOK_S, self._look)
        record = self._system.stored
        if record is None or record.paused is None:
            self._rests_since_s = None
            return
        now_s = self._clockwork.now_s
        if self._rests_since_s is None or self._clockwork.unkind:
            self._rests_since_s = now_s
        term = self._system.leading_term
        if self._clockwork.unkind:
            if term is not None and self._clockwork.chance.random() < 0.2:
                self._clockwork.made["budget raised"] += 1
                self._raise(term, self._clockwork.chance.choice((0.01, 1.0, 3.0)))
        elif self._system.nothing_runs():
            if term is not None:
                self._raise(term, 100.0)
        elif now_s - self._rests_since_s > RELEASED_WITHIN_S:
            raise Broken(f"paused {RELEASED_WITHIN_S:g} s ago, and not all machines are given back")

    def _raise(self, term: "Term", times: float) -> None:
        terms = terms_of(term.job) if term.job is not None else None
        if terms is not None:
            usd = round((1 + times) * terms.total / 1_000_000, 6)
            self._clockwork.tell(f"the budget is raised to {usd} USD")
            term.hear(lambda: job_events.BudgetRaised(term.now_s, usd))
