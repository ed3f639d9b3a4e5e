"""`tradewind budget`: its output and its requests, and how `status` and `cost` show a paused job."""

import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import msgspec
import pytest
from aiohttp import web

from messages.api import JobList, Problem
from messages.budgets import BudgetRequest, BudgetView
from messages.costs import CostView
from messages.criteria import WhenSpent
from messages.ids import JobName
from tests.cli.answering import answering, as_json
from tests.cli.command import tradewind
from tests.cli.fake_master import a_view
from tradewind.cli.budget import ACTIONS, budget_lines
from tradewind.client.errors import JobUnknown
from tradewind.terminal import output

USD = 1_000_000
WHY = "9.9000 of 10.0000 USD are spent"
BEFORE = "before that"


def a_budget(**changes: Any) -> BudgetView:
    view = BudgetView(
        job=JobName("mnist"),
        micro_usd_total=10 * USD,
        when_spent=WhenSpent.PAUSE,
        micro_usd=4 * USD,
        reserve_micro_usd=USD // 10,
    )
    return msgspec.structs.replace(view, **changes)


class Answers:
    def __init__(self) -> None:
        self.budget = a_budget()
        self.raised: list[BudgetRequest] = []
        self.environ: dict[str, str] = {}

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/v1/jobs/mnist/budget":
            if request.method == "POST":
                self.raised.append(msgspec.json.decode(await request.read(), type=BudgetRequest))
            return as_json(self.budget)
        if request.path == "/v1/jobs/mnist/cost":
            return as_json(_a_cost(self.budget))
        view = a_view("mnist", "waiting", paused=True, why=f"its budget is reached: {WHY}")
        if request.path == "/v1/jobs/mnist":
            return as_json(view)
        if request.path == "/v1/jobs":
            return as_json(JobList((view,)))
        return as_json(Problem("There is no such job."), HTTPStatus.NOT_FOUND)


def _a_cost(budget: BudgetView) -> CostView:
    return CostView(
        job=JobName("mnist"),
        micro_usd=budget.micro_usd,
        nodes_micro_usd=budget.micro_usd,
        egress_micro_usd=0,
        micro_usd_per_hour=0,
        machines=0,
        node_s=3600.0,
        by_activity={"working": budget.micro_usd},
        on_demand_micro_usd=2 * budget.micro_usd,
        budget_micro_usd=budget.micro_usd_total,
        paused=budget.paused,
    )


@pytest.fixture
async def master() -> AsyncIterator[Answers]:
    answers = Answers()
    async with answering(answers.answer) as answers.environ:
        yield answers


async def test_a_budget_tells_what_is_left_and_what_happens_then(master: Answers) -> None:
    done = await tradewind("budget", "mnist", environ=master.environ)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [*budget_lines(master.budget)]
    assert done.says("mnist", "10.0000 USD", "4.0000 USD")
    assert done.says("left", "6.0000 USD", "0.1000")
    assert done.says("when spent", ACTIONS[WhenSpent.PAUSE])
    assert done.hint == ["tradewind", "cost", "mnist"]
    assert master.raised == []


async def test_a_paused_job_says_why_and_what_to_do(master: Answers) -> None:
    master.budget = a_budget(micro_usd=9_900_000, paused=WHY, spot_only=BEFORE)
    done = await tradewind("budget", "mnist", environ=master.environ)
    assert done.out.splitlines()[-2:] == [output.labelled("spot only", BEFORE), output.labelled("paused", WHY)]
    assert done.hint == ["tradewind", "budget", "mnist", "USD"]


async def test_a_budget_is_raised_to_a_sum_in_all(master: Answers) -> None:
    done = await tradewind("budget", "mnist", "25.5", "--json", environ=master.environ)
    assert master.raised == [BudgetRequest(25.5)]
    assert json.loads(done.out) == json.loads(msgspec.json.encode(master.budget))


async def test_a_job_without_a_budget_says_so(master: Answers) -> None:
    master.budget = a_budget(micro_usd_total=None, note="This master has no fleet.")
    done = await tradewind("budget", "mnist", environ=master.environ)
    first, note = done.out.splitlines()
    assert "mnist" in first and "4.0000 USD" in first
    assert note == master.budget.note


async def test_a_budget_that_was_passed_is_not_a_negative_rest(master: Answers) -> None:
    master.budget = a_budget(micro_usd=11 * USD)
    done = await tradewind("budget", "mnist", environ=master.environ)
    assert done.says("left", "nothing", " 1.0000 USD")


async def test_what_may_have_been_spent_unseen_is_not_left(master: Answers) -> None:
    master.budget = a_budget(assumed_micro_usd=5 * USD, note="The cloud does not list its machines (it is away).")
    done = await tradewind("budget", "mnist", environ=master.environ)
    assert done.out.splitlines() == [*budget_lines(master.budget)]
    assert done.out.splitlines()[1] == master.budget.note
    assert done.says("unseen", "5.0000 USD")
    assert done.says("left", " 1.0000 USD", "0.1000")
    master.budget = a_budget(assumed_micro_usd=7 * USD)
    done = await tradewind("budget", "mnist", environ=master.environ)
    assert done.says("left", "nothing", "up to", "1.0000 USD")


@pytest.mark.parametrize("bad", ["0", "-1", "much", "nan", "1e12"])
async def test_what_is_no_sum_is_refused_before_anybody_is_asked(master: Answers, bad: str) -> None:
    done = await tradewind("budget", "mnist", "--", bad, environ=master.environ)
    assert (done.code, master.raised) == (2, [])


async def test_an_unknown_job_is_told_with_what_it_may_mean(master: Answers) -> None:
    done = await tradewind("budget", "mnits", environ=master.environ)
    assert (done.code, done.error) == (2, JobUnknown("mnits", ["mnist"]).message)


async def test_status_and_cost_show_that_a_job_is_paused(master: Answers) -> None:
    master.budget = a_budget(paused=WHY)
    status = await tradewind("status", "mnist", environ=master.environ)
    assert status.says("mnist", "paused", WHY)
    assert status.hint == ["tradewind", "budget", "mnist"]
    cost = await tradewind("cost", "mnist", environ=master.environ)
    assert cost.says("budget", "10.0000 USD", "paused", WHY)


@pytest.mark.parametrize("amount", ["nan", "inf", "0", "much", "1e12"])
async def test_what_is_no_amount_of_money_is_told_before_anybody_is_asked(amount: str) -> None:
    done = await tradewind("budget", "mnist", amount, environ={"TRADEWIND_API_URL": "http://127.0.0.1:1"})
    assert done.code == 2
    assert done.says(repr(amount), "1,000,000,000")
