"""The demonstration on a simulated cloud keeps what it promises, and leaves nothing: no machine and no process."""

import asyncio
import json
import signal

import pytest

from tests.cli.command import finished, started, until_printed
from tests.e2e.traces import a_mark, nothing_is_left
from tradewind.demo.checks import CLAIMS
from tradewind.demo.cloud.checks import CLOUD_CLAIMS

DEMO_S = 360.0


@pytest.mark.usefixtures("cold_start")
async def test_machines_come_from_two_regions_are_taken_and_replaced_and_nothing_is_left() -> None:
    mark = a_mark()
    command = ("demo", "--json", "--workers", "3", "--steps", "200", "--seconds", "100")
    done = await finished(await started(*command, environ=mark), DEMO_S)
    report = json.loads(done.out) if done.out else {}
    assert report.get("failed_checks") == [], done.err
    assert done.code == 0, done.err
    assert report["checks"] == [*CLAIMS, *CLOUD_CLAIMS]
    assert report["steps"] == 200
    assert {"join", "repair"} <= {change["kind"] for change in report["changes"]}
    assert report["repeated_steps"] == 0
    cloud = report["cloud"]
    assert sorted(taken["how"] for taken in cloud["taken_with_notice"]) == ["preempted", "upgraded"]
    assert sorted(taken["how"] for taken in cloud["taken_without"]) == ["hung", "preempted"]
    assert cloud["losses"] == 2
    assert "us-central1-b" in cloud["stockouts"]
    assert any(len(world["workers"]) == 2 for world in cloud["regions"])
    assert (cloud["pools_left"], cloud["nodes_left"]) == (0, 0)
    assert cloud["bill_usd"] > 0
    assert cloud["decisions"][0]["why"]
    assert cloud["cost"]["micro_usd_per_1000_steps"] > 0
    await nothing_is_left(mark)


async def test_ctrl_c_while_machines_come_leaves_nothing() -> None:
    mark = a_mark()
    process = await started("demo", "--workers", "2", environ=mark)
    assert process.stdout is not None
    async with asyncio.timeout(DEMO_S):
        await until_printed(process.stdout, b"requesting a pool")
    process.send_signal(signal.SIGINT)
    done = await finished(process, DEMO_S)
    assert done.code == 130, done.err
    assert "Traceback" not in done.err
    await nothing_is_left(mark)
