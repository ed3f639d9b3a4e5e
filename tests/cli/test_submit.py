"""`tradewind submit` with a fake master."""

import json
from pathlib import Path

import pytest

from messages.api import EventLine
from runtime.exit_codes import EXIT_UNREACHABLE
from tests.cli.builders import a_job_file, asked, some_lines
from tests.cli.command import tradewind
from tests.cli.fake_master import FakeMaster, a_view
from tradewind.cli import submit as submitting
from tradewind.cli.submit import submitted_text
from tradewind.client.errors import unreachable

FAILED = "rank 0 exited with 7; no failure is allowed\nValueError: no data"


async def test_submit_says_what_was_submitted_and_the_next_command(master: FakeMaster, tmp_path: Path) -> None:
    done = await asked(master, "submit", a_job_file(tmp_path))
    assert (done.code, done.out.strip()) == (0, submitted_text(master.views["mnist"]))
    assert "mnist" in done.out and done.hint == ["tradewind", "logs", "mnist", "--follow"]
    assert master.submitted[0].launch.workdir == str(tmp_path)


async def test_submit_says_that_a_capacity_section_is_not_used_where_there_is_no_fleet(
    master: FakeMaster, tmp_path: Path
) -> None:
    job = a_job_file(tmp_path, "{name: mnist, launch: {script: train.py}, capacity: {max_usd_total: 5}}")
    done = await asked(master, "submit", job, "--json")
    assert done.says("warning: ", "capacity", "budget")
    assert json.loads(done.out)["name"] == "mnist"
    master.views.clear()
    master.fleet = "prod"
    assert "capacity" not in (await asked(master, "submit", job)).err


async def test_submit_with_wait_shows_the_lines_and_exits_with_the_jobs_result(
    master: FakeMaster, tmp_path: Path
) -> None:
    def fail(reported: FakeMaster) -> None:
        reported.lines += some_lines()
        reported.events.append(EventLine(0.1, "mnist", "trainer_failed", "rank 0 exited with 7", fields={"code": 7}))
        reported.end("mnist", "failed", FAILED)

    master.on_submit = fail
    done = await asked(master, "submit", a_job_file(tmp_path), "--wait")
    assert done.code == 7
    assert done.out == "[0] step 0\n[0] step 1\n"
    assert "[1] a warning\n" in done.err
    assert all(line in done.err for line in FAILED.splitlines())
    assert done.hint == ["tradewind", "events", "mnist"]


async def test_submit_with_wait_succeeds_with_the_job_and_can_print_json(master: FakeMaster, tmp_path: Path) -> None:
    master.on_submit = lambda reported: reported.end("mnist", "succeeded", "all 2 ranks exited with 0")
    done = await asked(master, "submit", a_job_file(tmp_path), "--wait", "--json")
    assert done.code == 0
    assert json.loads(done.out)["phase"] == "succeeded"


async def test_a_name_that_is_taken_is_one_sentence(master: FakeMaster, tmp_path: Path) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "submit", a_job_file(tmp_path))
    assert done.code == 2
    assert "'mnist'" in done.error and done.hint


async def test_a_bad_file_is_refused_before_the_master_is_asked(master: FakeMaster, tmp_path: Path) -> None:
    done = await asked(master, "submit", a_job_file(tmp_path, "{name: mnist, launch: {}, wrokers: 3}"))
    assert done.code == 2
    assert "wrokers" in done.err
    assert "Traceback" not in done.err
    assert master.asked == []


async def test_a_job_that_nobody_takes_ends_with_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "START_S", 0.3)
    done = await tradewind("submit", a_job_file(tmp_path), environ={"TRADEWIND_API_URL": "http://127.0.0.1:1"})
    assert done.code == EXIT_UNREACHABLE
    assert done.error == str(unreachable("http://127.0.0.1:1", "connection refused"))
    assert "`tradewind" in done.hint


async def test_a_job_is_submitted_in_place_of_the_last_one_of_its_name(master: FakeMaster, tmp_path: Path) -> None:
    master.views["mnist"] = a_view(phase="failed")
    done = await asked(master, "submit", a_job_file(tmp_path), "--replace")
    assert (done.code, done.out.strip()) == (0, submitted_text(master.views["mnist"]))
    assert master.views["mnist"].phase == "waiting"
