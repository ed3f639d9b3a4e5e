"""`tradewind status` with a fake master."""

import json
import re
import time

from messages.api import PausedRank, WorkerView
from messages.ids import Rank, WorkerId
from tests.cli.builders import asked
from tests.cli.fake_master import FakeMaster, a_view
from tradewind.cli.status import NO_JOBS
from tradewind.client.errors import JobUnknown


async def test_status_says_that_a_job_has_succeeded_and_is_running(master: FakeMaster) -> None:
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


async def test_where_only_jobs_are_that_cannot_be_read_there_are_jobs(master: FakeMaster) -> None:
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


async def test_status_as_json_is_what_the_master_said(master: FakeMaster) -> None:
    master.views = {"mnist": a_view(step=41)}
    assert json.loads((await asked(master, "status", "--json")).out)["jobs"][0]["step"] == 41
    assert json.loads((await asked(master, "status", "mnist", "--json")).out)["name"] == "mnist"


async def test_a_watched_job_is_shown_until_it_ends(master: FakeMaster) -> None:
    master.views = {"mnist": a_view("mnist", "succeeded")}
    done = await asked(master, "status", "mnist", "--watch")
    assert done.code == 0
    assert "succeeded" in done.out
