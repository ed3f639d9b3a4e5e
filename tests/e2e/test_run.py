"""`tradewind run` from beginning to end: real processes, real trainers, and nothing left of them."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.cli.command import Outcome, finished, started
from tests.conftest import eventually
from tests.e2e.traces import a_mark, carriers, is_role, nothing_is_left
from tests.escaping import escape_source, escaped
from tradewind.local.parts import restart_text

RUN_S = 180.0

SUM_OF_RANKS = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print(f"args {sys.argv[1:]} sum {total.item():g} of {dist.get_world_size()} in {os.getcwd()}")
print("to stderr", file=sys.stderr)
dist.destroy_process_group()
"""
FAILS = """
import sys
print("about to fail", file=sys.stderr)
sys.exit(7)
"""
COUNTS = """
import itertools, os, time
for number in itertools.count():
    print("line", number, flush=True)
    if not os.path.exists("hold"):
        break
    time.sleep(0.05)
print("counted", flush=True)
"""
TRAINS_FOR_EVER = """
import os, time
print("pid", os.getpid(), flush=True)
while True:
    time.sleep(0.1)
"""


def a_script(folder: Path, text: str) -> str:
    (folder / "train.py").write_text(text)
    return "train.py"


async def run(folder: Path, *arguments: str, mark: dict[str, str]) -> Outcome:
    return await finished(await started("run", *arguments, environ=mark, cwd=folder), RUN_S)


@pytest.mark.usefixtures("cold_start")
async def test_an_unmodified_script_runs_on_two_workers_and_nothing_is_left(tmp_path: Path) -> None:
    mark = a_mark()
    done = await run(tmp_path, "--workers", "2", a_script(tmp_path, SUM_OF_RANKS), "--lr", "0.1", "-m", mark=mark)
    assert done.code == 0, done.err
    said = f"args ['--lr', '0.1', '-m'] sum 3 of 2 in {tmp_path}"
    assert sorted(done.out.splitlines()) == [f"[0] {said}", f"[1] {said}"]
    assert "[0] to stderr" in done.err.splitlines()
    assert "[1] to stderr" in done.err.splitlines()
    await nothing_is_left(mark)


@pytest.mark.usefixtures("without_torch")
async def test_a_script_that_fails_ends_the_command_with_its_code_its_reason_and_its_last_lines(tmp_path: Path) -> None:
    mark = a_mark()
    done = await run(tmp_path, a_script(tmp_path, FAILS), mark=mark)
    assert done.code == 7, done.err
    assert "rank 0 exited with 7" in done.err
    assert "tradewind:   about to fail" in done.err
    await nothing_is_left(mark)


@pytest.mark.usefixtures("without_torch")
async def test_ctrl_c_ends_everything_and_leaves_nothing(tmp_path: Path) -> None:
    mark = a_mark()
    process = await started("run", "--workers", "2", a_script(tmp_path, TRAINS_FOR_EVER), environ=mark, cwd=tmp_path)
    assert process.stdout is not None
    async with asyncio.timeout(RUN_S):
        first = await process.stdout.readline()
    assert b"pid" in first
    process.send_signal(signal.SIGINT)
    done = await finished(process, RUN_S)
    assert done.code == 130, done.err
    assert "Traceback" not in done.err
    await nothing_is_left(mark)


@pytest.mark.usefixtures("without_torch")
async def test_ctrl_c_while_everything_starts_leaves_nothing(tmp_path: Path) -> None:
    mark = a_mark()
    process = await started("run", a_script(tmp_path, TRAINS_FOR_EVER), environ=mark, cwd=tmp_path)
    assert process.stderr is not None
    async with asyncio.timeout(RUN_S):
        first = await process.stderr.readline()
    assert b"starting nats-server" in first
    process.send_signal(signal.SIGINT)
    done = await finished(process, RUN_S)
    assert done.code == 130, done.err
    assert "Traceback" not in done.err
    await nothing_is_left(mark)


@pytest.mark.slow
@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("cgroup", ["false", "true"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_a_process_that_clears_its_environment_and_leaves_its_session_ends_with_the_command(
    tmp_path: Path, escape: str, number: signal.Signals, cgroup: str
) -> None:
    mark = {**a_mark(), "TRADEWIND_CGROUP": cgroup}
    script = a_script(tmp_path, escape_source(escape, TRAINS_FOR_EVER))
    process = await started("run", script, environ=mark, cwd=tmp_path)
    assert process.stdout is not None
    async with asyncio.timeout(RUN_S):
        assert b"pid" in await process.stdout.readline()
    assert len(escaped(escape)) == 1
    process.send_signal(number)
    await finished(process, RUN_S)
    await nothing_is_left(mark)
    await eventually(lambda: not escaped(escape), RUN_S, "it has ended")


@pytest.mark.usefixtures("without_torch")
async def test_a_command_that_is_killed_leaves_nothing_either(tmp_path: Path) -> None:
    mark = a_mark()
    process = await started("run", a_script(tmp_path, TRAINS_FOR_EVER), environ=mark, cwd=tmp_path)
    assert process.stdout is not None
    async with asyncio.timeout(RUN_S):
        assert b"pid" in await process.stdout.readline()
    assert len(carriers(mark)) > 4
    process.kill()
    assert (await finished(process, RUN_S)).code == -signal.SIGKILL
    await nothing_is_left(mark)


@pytest.mark.usefixtures("without_torch")
async def test_the_master_is_killed_and_started_again_and_each_line_is_shown_once(tmp_path: Path) -> None:
    mark = a_mark()
    hold = tmp_path / "hold"
    hold.touch()
    process = await started("run", a_script(tmp_path, COUNTS), environ=mark, cwd=tmp_path)
    assert process.stdout is not None
    async with asyncio.timeout(RUN_S):
        shown = [await process.stdout.readline()]
        (master,) = [pid for pid in carriers(mark) if is_role(pid, "master")]
        os.kill(master, signal.SIGKILL)
        while len(shown) < 60:
            shown.append(await process.stdout.readline())
    hold.unlink()
    done = await finished(process, RUN_S)
    assert done.code == 0, done.err
    assert restart_text("master", -9) in done.err
    *lines, last = [*b"".join(shown).decode().splitlines(), *done.out.splitlines()]
    assert lines == [f"[0] line {number}" for number in range(len(lines))]
    assert last == "[0] counted"
    await nothing_is_left(mark)
