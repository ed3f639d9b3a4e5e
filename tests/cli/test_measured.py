"""Measurements of a job's steps in status, cost and plan."""

import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path

import pytest
from aiohttp import web

from controlplane.catalog.shipped import shipped_catalog
from controlplane.catalog.views import offer_list
from messages.api import JobList, Problem
from messages.measured import MeasuredCompute, MeasuredProfile
from messages.workers import SampleCertificate
from tests.cli.answering import answering, as_json
from tests.cli.command import tradewind
from tests.cli.fake_master import a_view
from tradewind.terminal.output import step_text

MEASURED = MeasuredProfile(1_400_000_000, 256, 2.5, 0.334, {"L4": MeasuredCompute(0.012, 0.05)})
SENTENCE = step_text(MEASURED)
PROOF = "3 steps, 9 samples: 1 lost, 0 repeated"
A_JOB = """
name: opt
launch: {script: train.py}
workers: {min: 4, max: 8}
capacity: {accelerators: [L4, A100], regions: [us-, europe-], max_usd_per_hour: 40}
"""


def test_a_step_in_words() -> None:
    assert all(part in SENTENCE for part in ("2.5 s", "33%", "12 ms", "L4", "1.4 GB"))
    assert step_text(MeasuredProfile(72, 8)).startswith("72 bytes ")
    unknown = MeasuredProfile(4096, 8, 0.0004, 0.0, {"": MeasuredCompute(0.00002, 0.0)})
    parts = step_text(unknown).split("; ")
    assert [" ".join(part.split()[:2]).rstrip(",") for part in parts] == ["400 µs", "20 µs", "4.1 kB"]
    assert parts[0].startswith("400 µs, 0% ")


async def answer(request: web.Request) -> web.Response:
    if request.path == "/v1/offers":
        return as_json(offer_list(shipped_catalog(), None, 0.0))
    if request.path == "/v1/jobs":
        return as_json(JobList((a_view("opt", measured=MEASURED),)))
    if request.path == "/v1/jobs/opt":
        return as_json(a_view("opt", measured=MEASURED))
    return as_json(Problem("There is no such job."), HTTPStatus.NOT_FOUND)


@pytest.fixture
async def environ() -> AsyncIterator[dict[str, str]]:
    async with answering(answer) as known:
        yield known


async def test_the_status_of_a_job_says_where_its_time_goes(environ: dict[str, str]) -> None:
    done = await tradewind("status", "opt", environ=environ)
    assert f"a step: {SENTENCE}" in done.out, done.err
    reported = json.loads((await tradewind("status", "opt", "--json", environ=environ)).out)
    assert reported["measured"]["compute"]["L4"] == {"seconds_per_sample": 0.012, "seconds_per_step": 0.05}


async def test_the_status_of_a_job_that_is_over_shows_its_certificate() -> None:
    proof = SampleCertificate(steps=3, samples=9, lost=1, message=PROOF)

    async def ended(_request: web.Request) -> web.Response:
        return as_json(a_view("opt", "succeeded", certificate=proof))

    async with answering(ended) as environ:
        done = await tradewind("status", "opt", environ=environ)
        reported = json.loads((await tradewind("status", "opt", "--json", environ=environ)).out)
    assert f"certificate: {PROOF}" in done.out, done.err
    assert reported["certificate"]["lost"] == 1


async def test_the_status_of_a_job_that_diverged_says_nan_and_counts() -> None:
    async def diverged(_request: web.Request) -> web.Response:
        return as_json(a_view("opt", step=12, loss=None, loss_nonfinite=True, nonfinite=3, skipped=2))

    async with answering(diverged) as environ:
        done = await tradewind("status", "opt", environ=environ)
        reported = json.loads((await tradewind("status", "opt", "--json", environ=environ)).out)
    assert done.says("step 12", "nan"), done.err
    assert done.says("3 steps", "2 skipped")
    assert reported.get("loss") is None and reported["loss_nonfinite"] is True


async def test_a_plan_without_a_profile_uses_what_the_job_of_that_name_has_measured(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(A_JOB)
    done = await tradewind("plan", str(file), environ=environ)
    assert done.says("opt", SENTENCE), done.err
    assert "STEPS/S" in done.out
    reported = json.loads((await tradewind("plan", str(file), "--json", environ=environ)).out)
    assert (reported["is_assumed"], reported["measured"]["gradient_bytes"]) == (False, 1_400_000_000)
    file.write_text(A_JOB.replace("name: opt", "name: another"))
    other = await tradewind("plan", str(file), environ=environ)
    assert SENTENCE not in other.out and "STEPS/S" not in other.out, other.err
