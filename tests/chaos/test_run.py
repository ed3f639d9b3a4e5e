"""Whole chaos runs, through the command."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import msgspec
import pytest

from tests.chaos.report import Report
from tests.cli.command import until_printed
from tests.conftest import eventually
from tests.e2e.traces import a_mark, carriers, nothing_is_left

BOUND_S = 600.0


async def a_run(mark: dict[str, str], folder: Path, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos", *arguments),
        cwd=Path(__file__).parents[2],
        env={**os.environ, **mark, "TMPDIR": str(folder)},
        stdout=PIPE,
    )


def folders(folder: Path) -> list[Path]:
    return list(folder.glob("tradewind-*"))


@pytest.mark.slow
async def test_one_minute_of_faults_costs_no_sample_and_leaves_no_process(tmp_path: Path) -> None:
    mark, reported = a_mark(), tmp_path / "report.json"
    process = await a_run(mark, tmp_path, "--minutes", "1", "--seed", "7", "--json", str(reported))
    async with asyncio.timeout(BOUND_S):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    report = msgspec.json.decode(reported.read_bytes(), type=Report)
    assert report.holds and len(report.faults) > 5
    await nothing_is_left(mark)


@pytest.mark.slow
async def test_ctrl_c_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    mark = a_mark()
    process = await a_run(mark, tmp_path, "--minutes", "1")
    assert process.stdout is not None
    async with asyncio.timeout(BOUND_S):
        await until_printed(process.stdout, b"waiting")
    await eventually(lambda: len(carriers(mark)) > 10, what="the workers start")
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(BOUND_S):
        await process.communicate()
    assert process.returncode == 130
    assert folders(tmp_path) == []
    await nothing_is_left(mark)
