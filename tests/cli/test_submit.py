"""`tradewind submit`, against a master that answers as told."""

import asyncio
import json
import signal
from pathlib import Path

from messages.api import EventLine
from tests.cli.builders import a_job_file, asked, some_lines
from tests.cli.command import finished, started, tradewind
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually


async def test_submit_says_what_was_submitted_and_the_next_command(master: FakeMaster, tmp_path: Path) -> None:
    done = await asked(master, "submit", a_job_file(tmp_path))
    assert (done.code, done.err) == (0, "")
    assert "Job mnist was submitted" in done.out
    assert done.out.endswith("Next: tradewind logs mnist --follow\n")
    assert master.submitted[0].launch.workdir == str(tmp_path)


async def test_submit_says_that_a_capacity_section_is_not_used_where_there_is_no_fleet(
    master: FakeMaster, tmp_path: Path
) -> None:
    job = a_job_file(tmp_path, "{name: mnist, launch: {script: train.py}, capacity: {max_usd_total: 5}}")
    done = await asked(master, "submit", job, "--json")
    assert "its capacity section is not used: this master has no fleet, so no budget is kept" in done.err
    assert json.loads(done.out)["name"] == "mnist"
    master.views.clear()
    master.fleet = "prod"
    assert "capacity" not in (await asked(master, "submit", job)).err


async def test_submit_with_wait_shows_the_lines_and_exits_with_the_jobs_result(
    master: FakeMaster, tmp_path: Path
) -> None:
    def fail(told: FakeMaster) -> None:
        told.lines += some_lines()
        told.events.append(EventLine(0.1, "mnist", "trainer_failed", "rank 0 exited with 7", fields={"code": 7}))
        told.end("mnist", "failed", "rank 0 exited with 7; no failure is allowed\nValueError: no data")

    master.on_submit = fail
    done = await asked(master, "submit", a_job_file(tmp_path), "--wait")
    assert done.code == 7
    assert done.out == "[0] step 0\n[0] step 1\n"
    assert "[1] a warning\n" in done.err
    assert "no failure is allowed" in done.err
    assert "ValueError: no data" in done.err
    assert "Next: tradewind events mnist" in done.err


async def test_submit_with_wait_succeeds_with_the_job_and_can_print_json(master: FakeMaster, tmp_path: Path) -> None:
    master.on_submit = lambda told: told.end("mnist", "succeeded", "all 2 ranks exited with 0")
    done = await asked(master, "submit", a_job_file(tmp_path), "--wait", "--json")
    assert done.code == 0
    assert json.loads(done.out)["phase"] == "succeeded"


async def test_an_interrupted_wait_says_that_the_job_goes_on(master: FakeMaster, tmp_path: Path) -> None:
    process = await started("submit", a_job_file(tmp_path), "--wait", environ=master.environ)
    await eventually(lambda: master.streams)
    process.send_signal(signal.SIGINT)
    done = await finished(process)
    assert done.code == 130
    assert "job mnist goes on" in done.err
    assert "tradewind stop mnist" in done.err
    assert "Traceback" not in done.err


async def test_a_name_that_is_taken_is_one_sentence(master: FakeMaster, tmp_path: Path) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "submit", a_job_file(tmp_path))
    assert done.code == 2
    assert done.err == "Error: There is already a job 'mnist'.\nTry: choose another name\n"


async def test_a_bad_file_is_refused_before_the_master_is_asked(master: FakeMaster, tmp_path: Path) -> None:
    done = await asked(master, "submit", a_job_file(tmp_path, "{name: mnist, launch: {}, wrokers: 3}"))
    assert done.code == 2
    assert "wrokers" in done.err
    assert "Traceback" not in done.err
    assert master.asked == []


async def test_a_job_is_taken_by_a_master_that_was_started_a_moment_ago(tmp_path: Path) -> None:
    late = FakeMaster()
    process = await started("submit", a_job_file(tmp_path), environ=late.environ)
    assert process.stderr is not None
    async with asyncio.timeout(30):
        said = await process.stderr.readline()
    await late.start()
    try:
        done = await finished(process)
    finally:
        await late.stop()
    assert said.decode() == f"tradewind: no master at {late.url} yet; waiting for one, up to 5 s\n"
    assert (done.code, [spec.name for spec in late.submitted]) == (0, ["mnist"])


async def test_a_job_that_nobody_takes_ends_with_one_sentence(tmp_path: Path) -> None:
    done = await tradewind("submit", a_job_file(tmp_path), environ={"TRADEWIND_API_URL": "http://127.0.0.1:1"})
    assert done.code == 2
    _, sentence, hint = done.err.splitlines()
    assert sentence.startswith("Error: The master at http://127.0.0.1:1 cannot be reached: ")
    assert "tradewind master" in hint


async def test_a_job_is_submitted_in_place_of_the_last_one_of_its_name(master: FakeMaster, tmp_path: Path) -> None:
    master.views["mnist"] = a_view(phase="failed")
    done = await asked(master, "submit", a_job_file(tmp_path), "--replace")
    assert (done.code, "Job mnist was submitted" in done.out) == (0, True)
    assert master.views["mnist"].phase == "waiting"
