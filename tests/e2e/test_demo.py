"""The demonstration keeps what it promises, and cleans up when it is interrupted."""

import asyncio
import json
import signal

import pytest

from tests.cli.command import finished, started, until_printed
from tests.e2e.traces import a_mark, nothing_is_left

DEMO_S = 240.0


@pytest.mark.slow  # the demonstration on a simulated cloud makes the same checks, and more
async def test_the_demonstration_passes_its_own_checks_and_leaves_nothing() -> None:
    mark = a_mark()
    command = ("demo", "--local", "--json", "--workers", "3", "--steps", "90", "--seconds", "60")
    done = await finished(await started(*command, environ=mark), DEMO_S)
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["ok"]
    assert report["failed_checks"] == []
    assert report["steps"] == 90
    assert report["certificate"] == "90 steps, 2,160 samples: 0 lost, 0 repeated"
    assert {"hand-over", "join", "repair"} == {change["kind"] for change in report["changes"]}
    assert report["repeated_steps"] == 0
    assert len(report["kills"]) == 1
    assert len(report["joins"]) >= 1
    assert report["loss_last"] < report["loss_first"]
    await nothing_is_left(mark)


async def test_ctrl_c_in_the_middle_of_the_demonstration_leaves_nothing() -> None:
    mark = a_mark()
    process = await started("demo", "--local", "--workers", "2", environ=mark)
    assert process.stdout is not None
    async with asyncio.timeout(DEMO_S):
        await until_printed(process.stdout, b"is running with 2 ranks")
    process.send_signal(signal.SIGINT)
    done = await finished(process, DEMO_S)
    assert done.code == 130, done.err
    assert "Traceback" not in done.err
    await nothing_is_left(mark)
