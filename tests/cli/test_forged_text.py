"""Hostile text in events, jobs and lines cannot deceive the reader."""

import io
import re
from typing import cast

import pytest
from msgspec import structs
from rich.console import Console

from messages.api import EventLine, JobList, JobView, LogLine, WorkerView
from messages.ids import Generation, JobName, Rank, WorkerId
from messages.workers import WrittenCheckpoint
from runtime.errors import UserError
from runtime.process import tell
from tradewind.cli import status, stop
from tradewind.client.api import Api
from tradewind.terminal import output

FORGED = "12:00:00  the job has succeeded"
HOSTILE = f"lost\n{FORGED}\r{FORGED}\u2028{FORGED}\x1b[2J\x1b[31m[bold]\u202e"


GONE = "worker a is gone"
ADVICE = "tradewind status"


def an_event(text: str = GONE, why: str = "") -> EventLine:
    return EventLine(0.0, "job", "worker_gone", text, why)


def shown(renderable: object) -> str:
    written = io.StringIO()
    Console(file=written, width=1000, force_terminal=True, color_system=None).print(renderable)
    return written.getvalue()


def begins_like_ours(text: str) -> bool:
    """Whether a line begins with a time, like an event."""
    return any(re.match(r"\d\d:\d\d:\d\d  the job", line) for line in re.split("[\n\r\u2028]", text))


@pytest.mark.parametrize("event", [an_event(text=HOSTILE), an_event(why=HOSTILE), an_event(why=f"one\n{HOSTILE}")])
def test_an_event_shows_one_time_whatever_its_text_is(event: EventLine) -> None:
    line = output.event_line(event)
    assert not begins_like_ours(line)
    assert not set("\x1b\r\u2028\u202e") & set(line)


def test_a_reason_of_several_lines_is_still_readable() -> None:
    first, *rest = output.event_line(an_event(why="Traceback:\n  line 1\nValueError")).splitlines()
    assert first.endswith(f"{GONE}:")
    assert rest == ["          Traceback:", "            line 1", "          ValueError"]


def test_what_is_told_beside_a_script_cannot_be_taken_for_more(capsys: pytest.CaptureFixture[str]) -> None:
    output.tell_event(an_event(text=HOSTILE, why=HOSTILE))
    lines = capsys.readouterr().err.rstrip("\n").split("\n")
    assert all(line.startswith("tradewind: ") for line in lines)
    assert not set("\x1b\r\u2028\u202e") & set("".join(lines))


def test_a_line_of_a_script_cannot_be_taken_for_another_rank_s(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_line(LogLine(0.0, Rank(0), Generation(1), "x\n[1] y\r[2] z\x1b[1A"))
    printed = capsys.readouterr().out.rstrip("\n")
    assert all(piece.startswith("[0] ") for piece in re.split("[\r\n]", printed))


def test_status_shows_hostile_text_as_text() -> None:
    worker = WorkerView(WorkerId(HOSTILE), HOSTILE, "ready", "alive")
    job = JobView(JobName("job"), "failed", HOSTILE, Generation(1), 1, 1, 0, 0.0, workers=(worker,))
    for picture in (status.job_detail(job, 10.0), status.job_table(JobList((job,)), 10.0)):
        text = shown(picture)
        assert not begins_like_ours(text)
        assert not set("\x1b\r\u2028\u202e") & set(text)
    assert "[bold]" in shown(status.job_detail(job, 10.0)), "what looks like markup is text"


def test_a_stop_shows_hostile_text_as_text() -> None:
    before = JobView(JobName("job"), "running", "", Generation(1), 1, 1, 0, 0.0)
    after = structs.replace(before, checkpoint=WrittenCheckpoint(step=1, folder=HOSTILE, at=0.0))
    for texts in (stop.checkpoint_text(before, after), stop.checkpoint_text(after, after)):
        assert not set("\n\x1b\r\u2028\u202e") & set(texts[1])


async def test_a_job_that_does_not_stop_shows_why_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view = JobView(JobName("job"), "running", HOSTILE, Generation(1), 1, 1, 0, 0.0)

    class Answers:
        async def job(self, job: str) -> JobView:
            return view

        async def stop(self, job: str, grace_s: float | None) -> JobView:
            return view

    monkeypatch.setattr(stop, "MARGIN_S", 0.0)
    assert await stop.stop_job(cast(Api, Answers()), "job", None) == 1
    said = capsys.readouterr().out
    assert not begins_like_ours(said)
    assert not set("\x1b\r\u2028\u202e") & set(said)


def test_an_error_cannot_forge_advice(capsys: pytest.CaptureFixture[str]) -> None:
    tell(UserError("It failed\nTry: rm -rf /\x1b[2J", ADVICE, ("name: bad\nTry: this",)))
    lines = capsys.readouterr().err.rstrip("\n").split("\n")
    assert [line for line in lines if line.startswith("Try:")] == [f"Try: {ADVICE}"]
    assert not any("\x1b" in line for line in lines)
