"""What a job is told of its budget, and when."""

import asyncio
import contextlib

import pytest

from controlplane.budget.answers import answer
from controlplane.budget.keeper import BudgetKeeper
from controlplane.budget.terms import terms_of
from controlplane.budget.verdict import Purse, Verdict
from controlplane.budget.views import budget_view
from controlplane.job.events import BudgetFreed, BudgetRaised, BudgetReached
from controlplane.job.state import Job, Phase
from controlplane.ledger.state import Ledger
from messages.criteria import WhenSpent
from messages.ids import JobName
from runtime.clock import Clock
from tests.budget.builders import Holder, a_job, recorded, spending, usd
from tests.conftest import eventually
from tests.ledger.builders import JOB, at

PAUSE, ON_DEMAND_OFF, STOP = WhenSpent.PAUSE, WhenSpent.ON_DEMAND_OFF, WhenSpent.STOP
SPENT, SCARCE, WITHIN = Purse.SPENT, Purse.SCARCE, Purse.WITHIN


class StandingClock(Clock):
    def __init__(self, wall_s: float) -> None:
        self._wall_s = wall_s

    def monotonic_s(self) -> float:
        return 100.0

    def wall_s(self) -> float:
        return self._wall_s


def told(job: Job, purse: Purse) -> BudgetReached | BudgetFreed | None:
    terms = terms_of(job)
    assert terms is not None
    return answer(job, terms, Verdict(purse, "so it is"), 100.0)


@pytest.mark.parametrize(
    ("when_spent", "purse", "action"),
    [
        (PAUSE, WITHIN, None),
        (PAUSE, SCARCE, None),
        (PAUSE, SPENT, PAUSE),
        (STOP, SCARCE, None),
        (STOP, SPENT, STOP),
        (ON_DEMAND_OFF, WITHIN, None),
        (ON_DEMAND_OFF, SCARCE, ON_DEMAND_OFF),
        (ON_DEMAND_OFF, SPENT, PAUSE),
    ],
)
def test_what_is_done_depends_on_what_the_job_asked_for(
    when_spent: WhenSpent, purse: Purse, action: WhenSpent | None
) -> None:
    expected = BudgetReached(100.0, action, "so it is") if action is not None else None
    assert told(a_job(when_spent=when_spent), purse) == expected


def test_nothing_is_said_twice() -> None:
    assert told(recorded(a_job(), paused="since then"), SPENT) is None
    assert told(recorded(a_job(when_spent=ON_DEMAND_OFF), spot_only="since then"), SCARCE) is None
    assert told(recorded(a_job(when_spent=STOP), stop_why="since then"), SPENT) is None
    assert told(recorded(a_job(), phase=Phase.SUCCEEDED), SPENT) is None


def test_what_was_forbidden_is_allowed_again_one_after_the_other() -> None:
    job = recorded(a_job(when_spent=ON_DEMAND_OFF), paused="since then", spot_only="before")
    assert told(job, SCARCE) == told(job, WITHIN) == BudgetFreed(100.0, PAUSE, "so it is")
    assert told(recorded(job, paused=None), SCARCE) is None
    assert told(recorded(job, paused=None), WITHIN) == BudgetFreed(100.0, ON_DEMAND_OFF, "so it is")


def a_keeper(ledger: Ledger | None, at_s: float) -> BudgetKeeper:
    known = {JOB: ledger}

    def find(job: JobName) -> Ledger | None:
        return known.get(job)

    return BudgetKeeper(find, StandingClock(at(at_s) / 1000), lambda job: None)


def test_a_job_pauses_when_it_has_to_and_goes_on_when_it_may() -> None:
    held = Holder(a_job(10.0))
    a_keeper(spending(6.0, hours=1), 3600).look(held)
    assert held.told == []
    keeper = a_keeper(spending(6.0, hours=2), 7200)
    keeper.look(held)
    keeper.look(held)
    assert [type(event) for event in held.told] == [BudgetReached]
    held.post(BudgetRaised(100.0, 12.1))
    keeper.look(held)
    assert held.state.record.paused is not None, "12.2 are needed"
    held.post(BudgetRaised(100.0, 12.3))
    keeper.look(held)
    assert held.state.record.paused is None


def test_of_two_who_raise_a_budget_at_once_the_higher_word_counts() -> None:
    held = Holder(a_job(10.0))
    held.post(BudgetRaised(100.0, 20.0))
    held.post(BudgetRaised(100.0, 15.0))
    assert held.state.record.max_usd_total == 20.0


def test_without_a_ledger_or_a_budget_nothing_is_done() -> None:
    unknown, unlimited = Holder(a_job(10.0)), Holder(a_job(None))
    a_keeper(None, 7200).look(unknown)
    a_keeper(spending(6.0, hours=20), 72_000).look(unlimited)
    assert unknown.told == unlimited.told == []


async def test_all_jobs_are_looked_at_again_and_again() -> None:
    held = Holder(a_job(1.0))
    keeping = asyncio.create_task(a_keeper(spending(6.0, hours=1), 3600).run(lambda: [held]), name="budgets")
    await eventually(lambda: bool(held.told))
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping
    assert held.state.record.paused is not None


def test_people_see_what_is_spent_what_is_kept_and_why_it_waits() -> None:
    job = recorded(a_job(20.0), paused="since then")
    view = budget_view(job, spending(6.0, hours=1), None, at(3600))
    assert (view.micro_usd_total, view.micro_usd, view.reserve_micro_usd) == (usd(20), usd(6), usd(0.2))
    assert (view.when_spent, view.paused) == (PAUSE, "since then")
