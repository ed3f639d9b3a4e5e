"""`tradewind cost`: the text and the JSON of a job's ledger."""

import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import msgspec
import pytest
from aiohttp import web

from messages.api import JobList, Problem
from messages.costs import CostLine, CostView, EgressLine, ForecastView
from messages.ids import JobName
from messages.measured import MeasuredCompute, MeasuredProfile
from tests.cli.answering import answering, as_json
from tests.cli.command import tradewind
from tests.cli.fake_master import a_view
from tradewind.client.errors import JobUnknown
from tradewind.terminal import output
from tradewind.terminal.costs import cost_lines

USD = 1_000_000
JOB = JobName("mnist")


def a_cost(**changes: Any) -> CostView:
    line = CostLine("us-central1", "us-central1-a", "g2-standard-8", "L4", True, 36_000.0, 8 * USD, 6 * USD)
    view = CostView(
        job=JOB,
        micro_usd=8 * USD + 250_000,
        nodes_micro_usd=8 * USD,
        egress_micro_usd=250_000,
        micro_usd_per_hour=1_600_000,
        machines=2,
        node_s=36_000.0,
        by_activity={"starting": USD, "working": 6 * USD, "recovering": 400_000, "idle": 600_000},
        by_region={"us-central1": 8 * USD},
        by_accelerator={"L4": 8 * USD},
        on_demand_micro_usd=16 * USD,
        steps=20_000,
        samples=640_000,
        micro_usd_per_1000_steps=412_500,
        forecast=ForecastView(100_000, 41_250_000, 33 * USD, 74_250.0, 80_000),
        lines=(line,),
        egress=(EgressLine("us-central1-a", "europe-west4-a", 5 << 29, 250_000),),
    )
    return msgspec.structs.replace(view, **changes)


class Answers:
    def __init__(self) -> None:
        self.cost = a_cost()
        self.asked: list[str] = []
        self.environ: dict[str, str] = {}

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        if request.path == "/v1/jobs":
            return as_json(JobList((a_view("mnist"),)))
        if request.path != f"/v1/jobs/{JOB}/cost":
            return as_json(Problem("There is no such job."), HTTPStatus.NOT_FOUND)
        return as_json(self.cost)


@pytest.fixture
async def master() -> AsyncIterator[Answers]:
    answers = Answers()
    async with answering(answers.answer) as answers.environ:
        yield answers


async def test_everything_that_a_person_asks_is_told_in_a_line_each(master: Answers) -> None:
    done = await tradewind("cost", "mnist", environ=master.environ)
    assert done.code == 0, done.err
    assert done.out.splitlines()[:6] == [*cost_lines(master.cost)]
    assert done.says("mnist", "8.2500 USD", "8.0000 USD", "10.00 node-hours", "0.2500 USD", "2.5 GiB")
    assert done.says("now", "2 machines", "1.6000 USD")
    assert done.says("1,000 steps", "0.4125 USD", "20,000", "640,000")
    assert done.says("wasted", "2.0000 USD", "25.0%", "1.0000 starting", "0.4000 recovering", "0.6000 idle")
    assert done.says("on demand", "16.0000 USD", "50% saved")
    assert done.says("forecast", "41.2500 USD", "100,000", "33.0000 USD", "20 h")
    (row,) = [line.split() for line in done.out.splitlines() if line.startswith("us-central1-a")]
    assert row == ["us-central1-a", "L4", "g2-standard-8", "spot", "10.00", "8.0000", "75%"]
    assert done.hint == ["tradewind", "status", "mnist"]


async def test_steps_that_cost_nothing_are_not_taken_for_done(master: Answers) -> None:
    master.cost = a_cost(forecast=ForecastView(1200, 0, 0, None, 1193))
    done = await tradewind("cost", "mnist", environ=master.environ)
    assert done.says("forecast", "1193 steps", "1,200") and not done.says("forecast", "0.0000")


async def test_json_is_what_the_master_told(master: Answers) -> None:
    done = await tradewind("cost", "mnist", "--steps", "500", "--json", environ=master.environ)
    assert json.loads(done.out) == json.loads(msgspec.json.encode(master.cost))
    assert master.asked == ["/v1/jobs/mnist/cost?steps=500"]


async def test_a_job_that_has_cost_nothing_says_why_and_divides_nothing_by_nothing(master: Answers) -> None:
    master.cost = CostView(
        job=JOB,
        micro_usd=0,
        nodes_micro_usd=0,
        egress_micro_usd=0,
        micro_usd_per_hour=0,
        machines=0,
        node_s=0.0,
        by_activity={},
        note="This master has no fleet.",
    )
    done = await tradewind("cost", "mnist", environ=master.environ)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [*cost_lines(master.cost)]
    assert done.says("mnist", "0.0000 USD", "0.00 node-hours")
    assert master.cost.note in done.out.splitlines()
    assert [line.split()[0] for line in done.out.splitlines()[2:]] == ["1,000", "forecast"]


async def test_regions_unpriced_time_and_a_missing_number_of_steps_are_told(master: Answers) -> None:
    master.cost = a_cost(
        by_region={"us-central1": 3 * USD, "europe-west4": 5 * USD}, unpriced_node_s=7200.0, forecast=None
    )
    done = await tradewind("cost", "mnist", environ=master.environ)
    assert done.says("regions", "europe-west4 5.0000", "us-central1 3.0000")
    assert done.says("forecast", "--steps N")
    assert done.says("unpriced", "2 h")


async def test_nothing_is_foretold_of_a_job_that_has_ended(master: Answers) -> None:
    master.cost = a_cost(forecast=None, ended=True)
    done = await tradewind("cost", "mnist", environ=master.environ)
    assert done.code == 0, done.err
    assert "forecast" not in done.out


async def test_an_unknown_job_is_answered_with_the_one_that_was_meant(master: Answers) -> None:
    done = await tradewind("cost", "mnits", environ=master.environ)
    assert done.code == 2
    assert done.error == JobUnknown("mnits", ["mnist"]).message


@pytest.mark.parametrize("bad", ["0", "many", "-3"])
async def test_steps_that_are_none_are_refused(master: Answers, bad: str) -> None:
    done = await tradewind("cost", "mnist", f"--steps={bad}", environ=master.environ)
    assert done.code == 2
    assert "--steps" in done.err
    assert master.asked == []


async def test_where_the_time_of_a_step_goes_is_told_if_it_was_measured(master: Answers) -> None:
    measured = MeasuredProfile(1_400_000_000, 256, 2.5, 0.25, {"L4": MeasuredCompute(0.012, 0.05)})
    master.cost = a_cost(measured=measured)
    done = await tradewind("cost", "mnist", environ=master.environ)
    assert output.labelled("a step", output.step_text(measured)) in done.out.splitlines(), done.err
