"""`tradewind status` with a fake master."""

import asyncio
import json
import re
import time

import pytest
from rich.console import Console

from messages.api import PausedRank, WorkerView
from messages.ids import Rank, WorkerId
from messages.workers import WrittenCheckpoint
from tests.cli.builders import asked
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually
from tradewind.cli import status
from tradewind.cli.status import NO_JOBS, show_status
from tradewind.client.api import Api, session
from tradewind.client.errors import JobUnknown
from tradewind.terminal import tables

LONG = "a reason that is longer than the terminal is wide"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch fetches the status a hundred times a second."""
    monkeypatch.setattr(status, "WATCH_EVERY_S", 0.01)


async def until_fetched_again(master: FakeMaster, path: str) -> None:
    """Wait until the answer to an earlier request has been shown."""
    asked_before = len(master.asked)
    await eventually(lambda: master.asked[asked_before:].count(f"GET {path}") >= 2)


async def test_status_shows_the_phase_of_a_job_with_its_verb(master: FakeMaster) -> None:
    for phase, text in (("running", "is running"), ("succeeded", "has succeeded"), ("stopped", "was stopped")):
        master.views["mnist"] = a_view("mnist", phase)
        assert f"mnist {text}: a world of 2" in (await asked(master, "status", "mnist")).out


async def test_status_lists_the_jobs_and_the_next_command(master: FakeMaster) -> None:
    master.views = {"mnist": a_view(step=41), "old": a_view("old", "failed", submitted_at=1_600_000_000.0)}
    done = await asked(master, "status")
    assert done.code == 0
    rows = [line.split()[:2] for line in done.out.splitlines() if line.startswith(("mnist", "old"))]
    assert rows == [["mnist", "running"], ["old", "failed"]]
    assert done.hint == ["tradewind", "status", "mnist"]


async def test_status_lists_a_job_whose_record_cannot_be_read_and_where_that_is_explained(master: FakeMaster) -> None:
    master.views, master.unread = {"mnist": a_view()}, ("newer",)
    done = await asked(master, "status")
    (row,) = (line for line in done.out.splitlines() if line.startswith("newer"))
    assert row.split()[1] == "unread"
    assert row.split()[-3:] == ["tradewind", "status", "newer"]
    assert json.loads((await asked(master, "status", "--json")).out)["unread"] == ["newer"]
    explained = await asked(master, "status", "newer")
    assert (explained.code, explained.out) == (2, "")
    assert "'newer'" in explained.error and explained.hint == ["a", "master", "of", "its", "version"]
    assert (await asked(master, "status", "never")).error == JobUnknown("never", ["mnist", "newer"]).message
    assert "'newer'" in JobUnknown("never", ["mnist", "newer"]).message


async def test_jobs_that_cannot_be_read_count_as_jobs(master: FakeMaster) -> None:
    master.unread = ("newer",)
    done = await asked(master, "status")
    assert NO_JOBS not in done.out
    assert done.hint == ["tradewind", "status", "newer"]


async def test_status_of_a_job_shows_its_workers(master: FakeMaster) -> None:
    workers = (
        WorkerView(worker=WorkerId("w1-aa"), cluster="local", phase="ready", presence="alive", ranks=(Rank(0),)),
    )
    master.views = {"mnist": a_view(workers=workers)}
    done = await asked(master, "status", "mnist")
    assert "w1-aa" in done.out
    assert done.hint == ["tradewind", "logs", "mnist", "--follow"]


async def test_status_of_a_job_shows_which_ranks_are_paused_and_why(master: FakeMaster) -> None:
    paused = (PausedRank(Rank(0), "evaluating", time.time() - 12.5),)
    worker = WorkerView(
        worker=WorkerId("w1-aa"), cluster="local", phase="ready", presence="alive", ranks=(Rank(0),), paused=paused
    )
    master.views = {"mnist": a_view(workers=(worker,))}
    assert re.search(r"^rank 0: evaluating .*1[23] s$", (await asked(master, "status", "mnist")).out, re.MULTILINE)


async def test_status_as_json_is_the_answer_of_the_master(master: FakeMaster) -> None:
    master.views = {"mnist": a_view(step=41)}
    assert json.loads((await asked(master, "status", "--json")).out)["jobs"][0]["step"] == 41
    assert json.loads((await asked(master, "status", "mnist", "--json")).out)["name"] == "mnist"


@pytest.mark.usefixtures("quick")
async def test_a_watch_as_json_prints_one_line_for_each_change_until_the_job_ends(master: FakeMaster) -> None:
    master.views = {"mnist": a_view()}
    watching = asyncio.create_task(asked(master, "status", "mnist", "--watch", "--json"))
    await until_fetched_again(master, "/v1/jobs/mnist")
    master.views["mnist"] = a_view(samples_per_s=32.0)
    await until_fetched_again(master, "/v1/jobs/mnist")
    master.views["mnist"] = a_view("mnist", "waiting")
    await until_fetched_again(master, "/v1/jobs/mnist")
    master.end("mnist", "succeeded")
    done = await watching
    assert done.code == 0
    assert [json.loads(line)["phase"] for line in done.out.splitlines()] == ["running", "waiting", "succeeded"]


@pytest.mark.usefixtures("quick")
async def test_a_watch_of_a_master_without_jobs_says_so_once(
    master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    async with session() as opened:
        watching = asyncio.create_task(show_status(Api(opened, master.url), None, watch=True, as_json=False))
        await until_fetched_again(master, "/v1/jobs")
        watching.cancel()
        await asyncio.wait({watching})
    assert capsys.readouterr().out == f"{NO_JOBS}\n"


async def test_a_watch_as_json_does_not_fold_its_lines_on_a_terminal(
    master: FakeMaster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "console", lambda: Console(force_terminal=True, width=40, _environ={}))
    master.views = {"mnist": a_view("mnist", "succeeded", why=LONG)}
    async with session() as opened:
        assert await show_status(Api(opened, master.url), "mnist", watch=True, as_json=True) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line)["why"] == LONG


@pytest.mark.usefixtures("quick")
async def test_a_watch_on_a_dumb_terminal_prints_each_change(
    master: FakeMaster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "console", lambda: Console(force_terminal=True, _environ={"TERM": "dumb"}))
    master.views = {"mnist": a_view()}
    async with session() as opened:
        watching = asyncio.create_task(show_status(Api(opened, master.url), "mnist", watch=True, as_json=False))
        await until_fetched_again(master, "/v1/jobs/mnist")
        master.end("mnist", "succeeded")
        assert await watching == 0
    assert re.findall(r"mnist \w+ (\w+)", capsys.readouterr().out) == ["running", "succeeded"]


async def test_the_newest_checkpoint_is_shown_with_its_step_if_the_step_is_known(master: FakeMaster) -> None:
    saved_at = time.time() - 3600.0
    for checkpoint, text in (
        (WrittenCheckpoint(7, "/ckpt", saved_at), "newest checkpoint: step 7 in /ckpt, 60 min ago"),
        (WrittenCheckpoint(at=saved_at), "newest checkpoint: saved by the script 60 min ago"),
    ):
        master.views = {"mnist": a_view(checkpoint=checkpoint)}
        assert text in (await asked(master, "status", "mnist")).out


async def test_a_watched_job_is_shown_until_it_ends(master: FakeMaster) -> None:
    master.views = {"mnist": a_view("mnist", "succeeded")}
    done = await asked(master, "status", "mnist", "--watch")
    assert done.code == 0
    assert "succeeded" in done.out
