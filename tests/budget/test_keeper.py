"""The events that a job gets about its budget, and when."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import pytest

from controlplane.budget.account import RELEASE_S
from controlplane.budget.decide import GRACE_AT_MOST_S, UNKNOWN, answer, why_too_many
from controlplane.budget.keeper import BudgetKeeper
from controlplane.budget.terms import terms_of
from controlplane.budget.verdict import Purse, Verdict
from controlplane.budget.views import budget_view
from controlplane.job.events import BudgetFreed, BudgetRaised, BudgetReached, ScaleAsked
from controlplane.job.state import Job
from controlplane.ledger.events import LedgerEvent, PricesChanged
from controlplane.ledger.state import Ledger
from messages.criteria import WhenSpent
from messages.ids import JobName
from messages.records import Phase
from runtime.clock import Clock
from tests.budget.builders import Holder, a_job, figures, recorded, spending, usd
from tests.conftest import eventually
from tests.ledger.builders import JOB, L4, a_ledger, a_life, a_rate, at, looks

PAUSE, ON_DEMAND_OFF, STOP = WhenSpent.PAUSE, WhenSpent.ON_DEMAND_OFF, WhenSpent.STOP
SPENT, SCARCE, WITHIN = Purse.SPENT, Purse.SCARCE, Purse.WITHIN
WHY_NOT = "so it is; more is needed"


class StandingClock(Clock):
    def __init__(self, wall_s: float) -> None:
        self._wall_s = wall_s

    def monotonic_s(self) -> float:
        return 100.0

    def wall_s(self) -> float:
        return self._wall_s


def reported(job: Job, purse: Purse) -> BudgetReached | BudgetFreed | None:
    terms = terms_of(job)
    assert terms is not None
    return answer(job.record, terms, Verdict(purse, "so it is", "more is needed"), 100.0)


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
    job = a_job(when_spent=when_spent)
    why = "so it is" if action is STOP else WHY_NOT
    expected = BudgetReached(100.0, action, why, job.record) if action is not None else None
    assert reported(job, purse) == expected


def test_nothing_is_said_twice() -> None:
    assert reported(recorded(a_job(), paused="since then", budget_reached=True), SPENT) is None
    spot_only = recorded(a_job(when_spent=ON_DEMAND_OFF), spot_only="since then", budget_reached=True)
    assert reported(spot_only, SCARCE) is None


@pytest.mark.parametrize("record", [{"stop_why": "since then"}, {"phase": Phase.SUCCEEDED}])
@pytest.mark.parametrize("unreadable", ["", "it is garbled"])
def test_a_job_that_ends_or_has_ended_is_told_nothing_more(record: dict[str, Any], unreadable: str) -> None:
    held = Holder(recorded(a_job(10.0, when_spent=STOP), **record))
    keeper_of(OneLedger(spending(6.0, hours=2), unreadable), 7200).look(held)
    assert held.reported == []


def test_what_was_forbidden_is_allowed_again_one_after_the_other() -> None:
    job = recorded(a_job(when_spent=ON_DEMAND_OFF), paused="since then", spot_only="before")
    assert reported(recorded(job, budget_reached=True), WITHIN) is None, "nobody has raised it"
    assert reported(job, WITHIN) == BudgetFreed(100.0, PAUSE)
    assert reported(recorded(job, paused=None), WITHIN) == BudgetFreed(100.0, ON_DEMAND_OFF)


@pytest.mark.parametrize(("field", "action"), [("paused", PAUSE), ("spot_only", ON_DEMAND_OFF)])
def test_what_a_person_changed_is_judged_once_and_then_it_stays_as_it_was(field: str, action: WhenSpent) -> None:
    held = Holder(recorded(a_job(when_spent=ON_DEMAND_OFF), **{field: "since then"}, budget_reached=True))
    assert reported(held.state, SCARCE) is None
    held.post(BudgetRaised(100.0, 10.01))
    again = reported(held.state, SCARCE)
    assert again == BudgetReached(100.0, action, WHY_NOT, held.state.record)
    held.post(again)
    assert reported(held.state, WITHIN) is None, "a cent was not enough, and nobody has given more since"


@dataclass
class OneLedger:
    ledger: Ledger | None = None
    unreadable: str = ""
    blind: str = ""

    def known(self, job: JobName) -> Ledger | None:
        return self.ledger if job == JOB else None

    def why_unreadable(self, job: JobName) -> str:
        return self.unreadable

    def why_blind(self) -> str:
        return self.blind


TORN = "it is torn"


def a_keeper(ledger: Ledger | None, at_s: float) -> BudgetKeeper:
    return keeper_of(OneLedger(ledger), at_s)


def keeper_of(ledgers: OneLedger, at_s: float) -> BudgetKeeper:
    return BudgetKeeper(ledgers, StandingClock(at(at_s) / 1000), lambda job: None)


def test_a_job_pauses_when_it_has_to_and_continues_when_it_may() -> None:
    held = Holder(a_job(10.0))
    a_keeper(spending(6.0, hours=1), 3600).look(held)
    assert held.reported == []
    keeper = a_keeper(spending(6.0, hours=2), 7200)
    keeper.look(held)
    keeper.look(held)
    assert [type(event) for event in held.reported] == [BudgetReached]
    for usd_in_all in (10.01, 12.1, 12.4):
        held.post(BudgetRaised(100.0, usd_in_all))
        keeper.look(held)
        assert held.state.record.paused is not None, "12.2 are needed to stay within it, and 12.4 to go on for a while"
    paused = held.state.record.paused or ""
    assert figures(paused) == ["12.0000", "12.4000", "0.2000", f"{RELEASE_S:g}", "0.4000"]
    held.post(BudgetRaised(100.0, 12.41))
    keeper.look(held)
    assert held.state.record.paused is None


def test_the_grace_of_a_pause_is_paid_from_the_reserve_also_where_steps_are_long() -> None:
    held = Holder(a_job(10.0), longest_step_s=300.0)
    a_keeper(spending(6.0, hours=2), 7200).look(held)
    [reached] = held.reported
    assert isinstance(reached, BudgetReached)
    assert reached.grace_s == GRACE_AT_MOST_S < RELEASE_S


def overlapping(hours: float) -> tuple[Ledger, Ledger]:
    """A machine and the one that takes its place: while both are there, and a minute later."""
    price: LedgerEvent = PricesChanged(at(0), {L4: a_rate(6.0)})
    until_s = hours * 3600
    lives = [a_life("old", lived_s=until_s + 30), a_life("new", started_s=until_s - 60, lived_s=until_s)]
    both = a_ledger(price, *looks(lives, 60, until_s))
    return both, a_ledger(price, *looks(lives, 60, until_s + 60))


def test_a_pause_that_came_while_a_machine_was_replaced_is_not_taken_back_when_it_is() -> None:
    held = Holder(a_job(12.48))
    both, one = overlapping(hours=2)
    a_keeper(both, 7200).look(held)
    assert [type(event) for event in held.reported] == [BudgetReached], "0.4 are needed to give both back"
    keeper = a_keeper(one, 7260)
    assert budget_view(held.state, one, None, at(7260)).reserve_micro_usd == usd(0.2)
    keeper.look(held)
    assert len(held.reported) == 1, "to be paused again with the next replacement"
    held.post(BudgetRaised(100.0, 12.8))
    keeper.look(held)
    assert held.state.record.paused is None


def test_machines_on_demand_are_not_allowed_again_because_fewer_are_there() -> None:
    held = Holder(a_job(12.85, when_spent=ON_DEMAND_OFF))
    both, one = overlapping(hours=2)
    a_keeper(both, 7200).look(held)
    a_keeper(one, 7260).look(held)
    assert [type(event) for event in held.reported] == [BudgetReached]


def test_a_budget_that_is_raised_while_it_is_judged_is_judged_again() -> None:
    held = Holder(a_job(10.0))
    late = reported(held.state, SPENT)
    assert late is not None
    held.post(BudgetRaised(100.0, 50.0))
    held.post(late)
    assert held.state.record.paused is None


def test_who_wants_fewer_workers_may_continue_with_what_is_left() -> None:
    held = Holder(a_job(12.5, workers=4))
    keeper = a_keeper(spending(6.0, hours=2), 7200)
    keeper.look(held)
    for workers in (2, 1):
        held.post(ScaleAsked(100.0, workers))
        keeper.look(held)
    kinds = [BudgetReached, ScaleAsked, BudgetReached, ScaleAsked, BudgetFreed]
    assert [type(event) for event in held.reported] == kinds, "0.4 are kept for two, and twice as much is not left"


def test_who_wants_as_many_workers_or_more_is_not_allowed_what_was_forbidden() -> None:
    held = Holder(a_job(12.48, workers=3))
    held.post(ScaleAsked(100.0, 1))
    both, _ = overlapping(hours=2)
    a_keeper(both, 7200).look(held)
    assert held.state.record.paused is not None
    cheaper = a_keeper(spending(1.0, hours=2), 7260)
    for workers in (1, 2, 3):
        held.post(ScaleAsked(100.0, workers))
        cheaper.look(held)
    assert held.state.record.paused is not None, "though by then there would be enough"
    assert [type(event) for event in held.reported].count(BudgetFreed) == 0


def test_more_workers_than_the_rest_keeps_a_reserve_for_are_too_many() -> None:
    job = recorded(a_job(12.5, workers=4), wanted=2)
    ledger = spending(6.0, hours=2)

    def why(workers: int, job: Job = job) -> str | None:
        return why_too_many(job, workers, ledger, at_ms=at(7200))

    assert [why(workers) for workers in (1, 2)] == [None, None], "0.4 are kept for two"
    assert figures(why(3) or "") == ["12.0000", "12.5000", "0.6000", f"{RELEASE_S:g}"]
    assert why(3, recorded(job, max_usd_total=12.7)) is None
    assert why(4, a_job(None, workers=4)) is None


def test_a_verdict_holds_for_who_wants_more_workers_while_it_is_made() -> None:
    held = Holder(recorded(a_job(10.0, workers=3), wanted=1))
    late = reported(held.state, SPENT)
    assert late is not None
    held.post(ScaleAsked(100.0, 3))
    held.post(late)
    assert held.state.record.paused == WHY_NOT


def test_of_two_who_raise_a_budget_at_once_the_higher_word_counts() -> None:
    held = Holder(a_job(10.0))
    held.post(BudgetRaised(100.0, 20.0))
    held.post(BudgetRaised(100.0, 15.0))
    assert held.state.record.max_usd_total == 20.0


def test_without_a_ledger_or_a_budget_nothing_is_done() -> None:
    unknown, unlimited = Holder(a_job(10.0)), Holder(a_job(None))
    a_keeper(None, 7200).look(unknown)
    a_keeper(spending(6.0, hours=20), 72_000).look(unlimited)
    assert unknown.reported == unlimited.reported == []


@pytest.mark.parametrize("when_spent", [PAUSE, STOP, ON_DEMAND_OFF])
def test_a_job_whose_ledger_cannot_be_read_waits_whatever_it_asked_for(when_spent: WhenSpent) -> None:
    held, ledgers = Holder(a_job(10.0, when_spent=when_spent)), OneLedger(unreadable=TORN)
    keeper = keeper_of(ledgers, 3600)
    for _ in range(2):
        keeper.look(held)
    assert [type(event) for event in held.reported] == [BudgetReached], "nothing is said twice"
    assert held.state.record.stop_why is None
    assert f"{UNKNOWN} ({TORN})" in (held.state.record.paused or "")
    held.post(BudgetRaised(100.0, 1000.0))
    keeper.look(held)
    assert held.state.record.paused is not None, "more money tells nobody what is spent"


def test_a_job_continues_when_a_person_has_seen_to_its_ledger_and_says_what_it_may_spend() -> None:
    held, ledgers = Holder(a_job(10.0)), OneLedger(unreadable=TORN)
    keeper_of(ledgers, 3600).look(held)
    read = a_keeper(spending(6.0, hours=1), 3600)
    read.look(held)
    assert held.state.record.paused is not None, "nobody has said anything"
    held.post(BudgetRaised(100.0, 10.0))
    read.look(held)
    assert held.state.record.paused is None


def test_a_job_whose_machines_nobody_can_see_pauses_before_its_money_could_be_gone() -> None:
    held, ledgers = Holder(a_job(10.0)), OneLedger(spending(6.0, hours=1, gone=True))
    keeper_of(ledgers, 3600 + 2400).look(held)
    assert held.reported == [], "its machine is gone, as far as anybody can see"
    ledgers.blind = "the API is disabled"
    keeper_of(ledgers, 3600 + 2100).look(held)
    assert held.reported == [], "another may have come since: 3.5 USD at most"
    keeper_of(ledgers, 3600 + 2400).look(held)
    assert figures(held.state.record.paused or "")[:3] == ["5.9500", "10.0000", "4.0000"]
    ledgers.blind = ""
    again = keeper_of(ledgers, 3600 + 2400)
    again.look(held)
    assert held.state.record.paused is not None, "it is for a person to let it go on"
    held.post(BudgetRaised(100.0, 10.0))
    again.look(held)
    assert held.state.record.paused is None, "what was assumed was not spent"


def test_a_job_without_a_budget_trains_on_with_a_ledger_that_cannot_be_read() -> None:
    held = Holder(a_job(None))
    keeper_of(OneLedger(unreadable="it is torn"), 3600).look(held)
    assert held.reported == []


async def test_all_jobs_are_looked_at_again_and_again() -> None:
    held = Holder(a_job(1.0))
    keeping = asyncio.create_task(a_keeper(spending(6.0, hours=1), 3600).run(lambda: [held]), name="budgets")
    await eventually(lambda: bool(held.reported))
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping
    assert held.state.record.paused is not None


def test_people_see_what_is_spent_what_is_kept_and_why_it_waits() -> None:
    job = recorded(a_job(20.0), paused="since then")
    view = budget_view(job, spending(6.0, hours=1), None, at(3600))
    assert (view.micro_usd_total, view.micro_usd, view.reserve_micro_usd) == (usd(20), usd(6), usd(0.2))
    assert (view.when_spent, view.paused) == (PAUSE, "since then")
