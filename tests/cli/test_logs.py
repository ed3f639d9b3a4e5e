"""`tradewind logs`, against a master that answers as told."""

import asyncio
import os
import sys

from tests.cli.builders import asked, some_lines
from tests.cli.command import finished, started
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually


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
