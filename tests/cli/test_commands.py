"""The commands about jobs, against a master that answers as told: what they print, and what they exit with."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from aiohttp import web

from messages.api import EventLine, LogLine, PausedRank, WorkerView
from messages.ids import Generation, Rank, WorkerId
from messages.workers import WrittenCheckpoint
from tests.cli.answering import answering
from tests.cli.command import Outcome, finished, started, tradewind
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually

A_JOB = "{name: mnist, launch: {script: train.py}, workers: {max: 2}}"


def a_job_file(folder: Path, text: str = A_JOB) -> str:
    file = folder / "job.yaml"
    file.write_text(text)
    return str(file)


def some_lines() -> list[LogLine]:
    return [
        LogLine(at=1.0, rank=Rank(0), generation=Generation(1), line="step 0"),
        LogLine(at=1.5, rank=Rank(1), generation=Generation(1), line="a warning", stderr=True),
        LogLine(at=2.0, rank=Rank(0), generation=Generation(1), line="step 1"),
    ]


async def asked(master: FakeMaster, *arguments: str) -> Outcome:
    return await tradewind(*arguments, environ=master.environ)


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


async def test_status_says_that_a_job_has_succeeded_and_is_running(master: FakeMaster) -> None:
    for phase, says in (("running", "is running"), ("succeeded", "has succeeded"), ("stopped", "was stopped")):
        master.views["mnist"] = a_view("mnist", phase)
        assert f"mnist {says}: a world of 2" in (await asked(master, "status", "mnist")).out


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


async def test_an_unknown_job_is_answered_with_the_nearest_names(master: FakeMaster) -> None:
    master.views = {"mnist-big": a_view("mnist-big"), "llama": a_view("llama")}
    done = await asked(master, "status", "mnist-bug")
    assert done.code == 2
    assert done.err == "Error: There is no job 'mnist-bug'. Did you mean 'mnist-big'?\nTry: tradewind status\n"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        (
            "TRADEWIND_API_URL",
            "http://127.0.0.1:1",
            "The master at http://127.0.0.1:1 cannot be reached: nobody listens",
        ),
        ("TRADEWIND_API_URL", "http://127.0.0.1:99999", "http://127.0.0.1:99999 cannot be reached: that is no address"),
        ("TRADEWIND_API_URL", "localhost", "'localhost', but must be http://HOST:PORT, or several with commas"),
        (
            "TRADEWIND_API_TOKEN",
            "secret\n",
            "TRADEWIND_API_TOKEN contains a line break or another unprintable character",
        ),
    ],
)
async def test_a_master_that_cannot_be_asked_is_one_sentence_and_what_to_do(
    master: FakeMaster, variable: str, value: str, told: str
) -> None:
    for command in (("cost", "mnist"), ("budget", "mnist", "9"), ("explain", "mnist")):
        done = await tradewind(*command, environ={**master.environ, variable: value})
        assert (done.code, done.out) == (2, "")
        assert told in done.err and "\nTry: " in done.err
        assert "Traceback" not in done.err and "secret" not in done.err


async def test_what_answers_and_is_no_master_is_told_without_what_it_said() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'INFO {"server_name": "a bus"}\r\n')
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        done = await tradewind("cost", "mnist", environ={"TRADEWIND_API_URL": url})
    assert done.code == 2
    assert f"{url} cannot be reached: what answers there does not speak HTTP.\nTry: " in done.err


@pytest.mark.parametrize(
    ("sent_to", "hint"),
    [
        ("https://master.example{path}", "export TRADEWIND_API_URL=https://master.example"),
        ("/login", "export TRADEWIND_API_URL=http://HOST:PORT of the master"),
    ],
)
@pytest.mark.parametrize("command", [("stop", "mnist"), ("events",)])
async def test_who_is_sent_on_is_told_where_and_follows_nowhere(
    command: tuple[str, ...], sent_to: str, hint: str
) -> None:
    asked: list[str] = []

    async def send_on(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=302, headers={"Location": sent_to.format(path=request.path)})

    async with answering(send_on) as environ:
        done = await tradewind(*command, environ=environ)
    (path,) = asked
    place = sent_to.format(path=path)
    assert done.err == (
        f"Error: {environ['TRADEWIND_API_URL']} redirects to {place}; redirects are not followed.\nTry: {hint}\n"
    )


@pytest.mark.parametrize(
    ("answer", "why", "hint"),
    [
        ("500 Internal Server Error", "status 500", "look at the master's log, and ask again"),
        ('{"error": "The bus is away.", "hint": "try again in a moment"}', "The bus is away", "try again in a moment"),
    ],
)
async def test_a_master_that_answers_but_cannot_is_not_said_to_be_out_of_reach(
    answer: str, why: str, hint: str
) -> None:
    async def fail(request: web.Request) -> web.Response:
        return web.Response(status=500, text=answer)

    async with answering(fail) as environ:
        done = await tradewind("status", environ=environ)
    assert done.code == 2
    assert done.err == (f"Error: The master at {environ['TRADEWIND_API_URL']} could not answer: {why}.\nTry: {hint}\n")


@pytest.mark.parametrize("name", ["mnist/cost", "..", "", "mnist?x=1", "mnist#"])
async def test_what_is_no_name_is_no_job_and_never_another_question(master: FakeMaster, name: str) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "cost", name)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: There is no job {name!r}.")
    assert done.err.endswith("Try: tradewind status\n")


async def test_a_master_that_is_not_there_is_one_sentence_and_what_to_start() -> None:
    done = await tradewind("status", environ={"TRADEWIND_API_URL": "http://127.0.0.1:1"})
    assert done.code == 2
    assert done.err.startswith("Error: The master at http://127.0.0.1:1 cannot be reached: ")
    assert "tradewind master" in done.err
    assert "Traceback" not in done.err


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


async def test_a_wrong_token_is_one_sentence(master: FakeMaster) -> None:
    master.token = "secret"
    done = await tradewind("status", environ={"TRADEWIND_API_URL": master.url, "TRADEWIND_API_TOKEN": "wrong"})
    assert done.code == 2
    assert "does not accept the token" in done.err
    assert "TRADEWIND_API_TOKEN" in done.err


async def test_the_right_token_is_sent(master: FakeMaster) -> None:
    master.token = "secret"
    done = await asked(master, "status")
    assert (done.code, done.err) == (0, "")
    assert "There are no jobs yet" in done.out


async def test_an_address_that_is_none_is_told() -> None:
    done = await tradewind("status", environ={"TRADEWIND_API_URL": "master:8800"})
    assert done.code == 2
    assert "TRADEWIND_API_URL" in done.err


async def test_status_lists_the_jobs_and_the_next_command(master: FakeMaster) -> None:
    master.views = {"mnist": a_view(step=41), "old": a_view("old", "failed", submitted_at=1_600_000_000.0)}
    done = await asked(master, "status")
    assert done.code == 0
    rows = [line.split()[:2] for line in done.out.splitlines() if line.startswith(("mnist", "old"))]
    assert rows == [["mnist", "running"], ["old", "failed"]]
    assert done.out.endswith("Next: tradewind status mnist\n")


async def test_status_lists_a_job_whose_record_cannot_be_read_and_where_that_is_explained(master: FakeMaster) -> None:
    master.views, master.unread = {"mnist": a_view()}, ("newer",)
    done = await asked(master, "status")
    (row,) = (line for line in done.out.splitlines() if line.startswith("newer"))
    assert row.split()[1] == "unread"
    assert row.endswith("this master has not read its record; try: tradewind status newer")
    assert json.loads((await asked(master, "status", "--json")).out)["unread"] == ["newer"]
    explained = await asked(master, "status", "newer")
    assert (explained.code, explained.out) == (2, "")
    assert explained.err == (
        "Error: There is a job 'newer', but its record cannot be read.\nTry: a master of its version\n"
    )
    assert "Did you mean 'newer'?" in (await asked(master, "status", "never")).err


async def test_where_only_jobs_are_that_cannot_be_read_there_are_jobs(master: FakeMaster) -> None:
    master.unread = ("newer",)
    done = await asked(master, "status")
    assert "There are no jobs yet" not in done.out
    assert done.out.endswith("Next: tradewind status newer\n")


async def test_status_of_a_job_shows_its_workers(master: FakeMaster) -> None:
    workers = (
        WorkerView(worker=WorkerId("w1-aa"), cluster="local", phase="ready", presence="alive", ranks=(Rank(0),)),
    )
    master.views = {"mnist": a_view(workers=workers)}
    done = await asked(master, "status", "mnist")
    assert "w1-aa" in done.out
    assert done.out.endswith("Next: tradewind logs mnist --follow\n")


async def test_status_of_a_job_shows_which_ranks_are_paused_and_why(master: FakeMaster) -> None:
    paused = (PausedRank(Rank(0), "evaluating", time.time() - 12.5),)
    worker = WorkerView(
        worker=WorkerId("w1-aa"), cluster="local", phase="ready", presence="alive", ranks=(Rank(0),), paused=paused
    )
    master.views = {"mnist": a_view(workers=(worker,))}
    assert "\nrank 0: evaluating for 1" in (await asked(master, "status", "mnist")).out


async def test_status_as_json_is_what_the_master_said(master: FakeMaster) -> None:
    master.views = {"mnist": a_view(step=41)}
    assert json.loads((await asked(master, "status", "--json")).out)["jobs"][0]["step"] == 41
    assert json.loads((await asked(master, "status", "mnist", "--json")).out)["name"] == "mnist"


async def test_a_watched_job_is_shown_until_it_ends(master: FakeMaster) -> None:
    master.views = {"mnist": a_view("mnist", "succeeded")}
    done = await asked(master, "status", "mnist", "--watch")
    assert done.code == 0
    assert "succeeded" in done.out


async def test_logs_of_a_rank(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.lines = some_lines()
    done = await asked(master, "logs", "mnist", "--rank", "1")
    assert (done.code, done.out, done.err) == (0, "", "[1] a warning\n")


async def test_the_tail_of_the_logs(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.lines = some_lines()
    done = await asked(master, "logs", "mnist", "--tail", "1")
    assert done.out == "[0] step 1\n"


async def test_logs_that_are_followed_end_with_the_job(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.lines = some_lines()[:1]
    process = await started("logs", "mnist", "--follow", environ=master.environ)
    await eventually(lambda: master.streams)
    master.lines += some_lines()[2:]
    master.end("mnist", "succeeded")
    done = await finished(process)
    assert (done.code, done.out) == (0, "[0] step 0\n[0] step 1\n")


async def test_a_job_that_printed_nothing_is_said_to(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "logs", "mnist")
    assert (done.code, done.out) == (0, "")
    assert "has printed nothing yet" in done.err


async def test_events_come_with_their_reasons(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.events.append(EventLine(1.0, "mnist", "worker_gone", "worker w1 is gone", "ended by SIGKILL"))
    master.events.append(
        EventLine(2.0, "mnist", "trainer_failed", "rank 0 exited with 1", '  File "a.py"\nSyntaxError')
    )
    done = await asked(master, "events", "mnist")
    gone, failed, *why = done.out.splitlines()
    assert gone.endswith("  worker w1 is gone (ended by SIGKILL)")
    assert failed.endswith("  rank 0 exited with 1:")
    assert why == ['            File "a.py"', "          SyntaxError"]


async def test_events_name_the_messages_that_led_to_them_when_asked(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    cause = "worker.left from worker/w1-3f (9c1e)"
    master.events.append(EventLine(1.0, "mnist", "worker_gone", "worker w1 is gone", caused_by=cause))
    master.events.append(EventLine(2.0, "mnist", "job_submitted", "the job was submitted"))
    assert cause not in (await asked(master, "events", "mnist")).out
    gone, why, submitted = (await asked(master, "events", "mnist", "--causes")).out.splitlines()
    assert gone.endswith("  worker w1 is gone")
    assert why == f"          caused by {cause}"
    assert submitted.endswith("  the job was submitted")


async def test_events_as_json_are_one_object_a_line(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.events.append(EventLine(1.0, "mnist", "worker_gone", "worker w1 is gone"))
    master.end("mnist", "stopped")
    done = await asked(master, "events", "mnist", "--follow", "--json")
    assert [json.loads(line)["kind"] for line in done.out.splitlines()] == ["worker_gone", "job_stopped"]


async def test_scale_tells_how_many_workers_the_job_may_have(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "scale", "mnist", "8")
    assert "may have 8 workers" in done.out
    assert "Next: tradewind status mnist --watch" in done.out


async def test_reload_tells_how_many_will_be_replaced(master: FakeMaster) -> None:
    master.views = {"mnist": a_view(world_size=4), "waiting": a_view("waiting", world_size=0)}
    done = await asked(master, "reload", "mnist")
    assert "takes its code anew: 4 workers began with the code from before." in done.out
    assert "Next: tradewind events mnist --follow" in done.out
    done = await asked(master, "reload", "waiting")
    assert "Job waiting has nobody yet with other code than there is now." in done.out


async def test_what_is_no_number_is_not_called_a_range(master: FakeMaster) -> None:
    done = await asked(master, "scale", "mnist", "many")
    assert (done.code, master.asked) == (2, [])
    assert "'many' is not a valid integer.\n" in done.err


async def test_stop_tells_that_the_job_has_stopped(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "stop", "mnist")
    assert "Job mnist has stopped." in done.out
    assert "nothing is known about a checkpoint" in done.err
    assert master.asked == ["GET /v1/jobs/mnist", "POST /v1/jobs/mnist/stop"]
    assert master.stopped_with == b""


async def test_stop_waits_for_the_end_and_names_the_checkpoint_that_was_written(master: FakeMaster) -> None:
    older = WrittenCheckpoint(100, "/kept", 1.0)
    master.views["mnist"] = a_view(checkpoint=older)
    master.stops_after, master.saves = 3, WrittenCheckpoint(120, "/kept", 2.0)
    done = await asked(master, "stop", "mnist", "--grace", "40")
    assert master.stopped_with == b'{"grace_s":40.0}'
    assert done.err.count("waiting up to 40 s for worker a to end the loop body and save") == 1
    assert done.out.splitlines()[:2] == ["Job mnist has stopped.", "Checkpoint of step 120 written to /kept."]


async def test_stop_warns_if_steps_were_done_after_the_newest_checkpoint(master: FakeMaster) -> None:
    master.views["mnist"], master.saves = a_view(step=116), WrittenCheckpoint(115, "/kept", 2.0)
    done = await asked(master, "stop", "mnist", "--grace", "0")
    assert "warning: the newest checkpoint is of step 115 in /kept, and 2 later steps are lost" in done.err


async def test_stop_warns_if_no_checkpoint_was_written(master: FakeMaster) -> None:
    master.views["mnist"] = a_view(checkpoint=WrittenCheckpoint(100, "/kept", 1.0))
    done = await asked(master, "stop", "mnist", "--grace", "0")
    assert "Job mnist has stopped." in done.out and "Checkpoint" not in done.out
    assert "warning: no checkpoint was written when the job stopped; the newest is of step 100 in /kept" in done.err
    ended = await asked(master, "stop", "mnist")
    assert "Job mnist has stopped." in ended.out and "checkpoint" not in ended.err


async def test_stop_and_status_say_what_is_known_of_a_plain_scripts_checkpoint(master: FakeMaster) -> None:
    known = WrittenCheckpoint(at=time.time() - 12.0)
    master.views["mnist"] = a_view(checkpoint=known)
    assert re.search("newest checkpoint of its script, 1[0-9] s ago", (await asked(master, "status", "mnist")).out)
    done = await asked(master, "stop", "mnist")
    old = "its script's newest known checkpoint is [12][0-9] s old; it got SIGTERM to save once more by itself"
    assert re.search(old, done.err)
    master.views["mnist"], master.saves = a_view(checkpoint=known), WrittenCheckpoint(at=time.time())
    done = await asked(master, "stop", "mnist")
    assert re.search("^Its script wrote a checkpoint [0-9] s ago.$", done.out, re.MULTILINE)


async def test_rm_removes_a_job_that_has_ended_and_says_that_its_name_is_free(master: FakeMaster) -> None:
    master.views["mnist"] = a_view(phase="succeeded")
    done = await asked(master, "rm", "mnist")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Job mnist, which had succeeded, was removed")
    assert (master.asked, master.views) == (["DELETE /v1/jobs/mnist"], {})
    again = await asked(master, "rm", "mnist")
    assert (again.code, again.err.startswith("Error: There is no job 'mnist'.")) == (2, True)


async def test_rm_of_a_job_that_runs_is_one_sentence_and_what_to_do(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "rm", "mnist")
    assert (done.code, done.err) == (2, "Error: Job 'mnist' is running.\nTry: tradewind stop mnist\n")


async def test_a_job_is_submitted_in_place_of_the_last_one_of_its_name(master: FakeMaster, tmp_path: Path) -> None:
    master.views["mnist"] = a_view(phase="failed")
    done = await asked(master, "submit", a_job_file(tmp_path), "--replace")
    assert (done.code, "Job mnist was submitted" in done.out) == (0, True)
    assert master.views["mnist"].phase == "waiting"


async def test_something_else_at_the_address_is_told_apart_from_a_master(master: FakeMaster) -> None:
    done = await tradewind("status", "x/../../healthz", environ=master.environ)
    assert done.code == 2
    assert "Traceback" not in done.err


async def test_names_of_jobs_complete_in_the_shell(master: FakeMaster) -> None:
    master.views = {"mnist-big": a_view("mnist-big"), "llama": a_view("llama")}
    words = {"COMP_WORDS": "tradewind status mn", "COMP_CWORD": "2", "_TRADEWIND_COMPLETE": "bash_complete"}
    done = await tradewind(environ={**master.environ, **words})
    assert done.out.split() == ["plain,mnist-big"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_there_is_a_completion_script_for_every_shell(shell: str) -> None:
    done = await tradewind("completion", shell, environ={})
    assert done.code == 0
    assert "_TRADEWIND_COMPLETE" in done.out


async def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    done = await tradewind("stauts", environ={})
    assert done.code == 2
    assert "Did you mean 'status'?" in done.err


async def test_a_reader_that_goes_away_is_no_traceback(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.lines = some_lines()
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tradewind", "logs", "mnist", "--follow"),
        env={**os.environ, **master.environ},
        stdout=writing,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writing)
    os.close(reading)
    done = await finished(process)
    assert done.code == 2
    assert "The output was closed" in done.err
    assert "Traceback" not in done.err
