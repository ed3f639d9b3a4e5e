"""Every command of the README is run: here, or by the test that is named here."""

import asyncio
import os
import re
import shlex
import shutil
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path

import msgspec
import pytest

from messages.api import JobView
from runtime.children import free_port
from tests.conftest import eventually
from tests.e2e.traces import a_mark, carriers, nothing_is_left

ROOT = Path(__file__).parents[2]
BLOCKS: list[str] = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
RUN_ELSEWHERE = {
    "make demo": "tests/e2e/test_demo.py",
    "make test": "this very run",
    ".venv/bin/tradewind run --workers 4 examples/ddp_checkpoint/train.py --steps 200 --snapshot snapshot.pt": (
        "tests/e2e/test_faults.py"
    ),
}
BOUND_S = 120.0


def tour() -> list[str]:
    """The block in which the parts are started by hand."""
    return next(block for block in BLOCKS if "tradewind master" in block).splitlines()


class Terminal:
    """Runs the README's lines in order, beside a copy of the examples; `&` leaves a command in the background."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("checkpoints"))
        self.folder = folder
        self.environ = environ
        self.background: list[asyncio.subprocess.Process] = []

    async def run(self, line: str) -> str:
        words = shlex.split(line.removesuffix("&").replace(".venv/bin", str(Path(sys.executable).parent)))
        if words[0].endswith("nats-server"):
            port = self.environ["TRADEWIND_NATS_URL"].rpartition(":")[2]
            words += ["-p", port, "-sd", str(self.folder / "nats")]
        process = await asyncio.create_subprocess_exec(
            *words, cwd=self.folder, env=self.environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        if line.endswith("&"):
            self.background.append(process)
            return ""
        async with asyncio.timeout(BOUND_S):
            out, _ = await process.communicate()
        assert process.returncode == 0, f"{line}: {out.decode()}"
        return out.decode()

    async def close(self) -> None:
        for process in reversed(self.background):
            process.terminate()
            try:
                async with asyncio.timeout(30):
                    await process.communicate()
            except TimeoutError:
                process.kill()
                await process.communicate()


def test_every_command_of_the_readme_is_run_by_a_test() -> None:
    commands = [line for block in BLOCKS for line in block.splitlines()]
    assert commands
    assert [line for line in commands if line not in tour() and line not in RUN_ELSEWHERE] == []
    for where in RUN_ELSEWHERE.values():
        assert where == "this very run" or (ROOT / where).exists()


async def test_the_parts_started_by_hand_do_what_the_readme_says(tmp_path: Path) -> None:
    mark, api = a_mark(), free_port()
    environ = {
        **os.environ,
        **mark,
        "TRADEWIND_NATS_URL": f"nats://127.0.0.1:{free_port()}",
        "TRADEWIND_API_PORT": f"{api}",
        "TRADEWIND_API_URL": f"http://127.0.0.1:{api}",
    }
    terminal = Terminal(tmp_path, environ)
    said: dict[str, str] = {}
    try:
        for line in tour():
            command = line.split()[1]
            if command == "submit":
                await _until_healthy(terminal)
            if command == "logs":
                await _until_running(terminal)
            said[command] = await terminal.run(line)
        await _until_phase(terminal, "stopped")
    finally:
        await terminal.close()
    assert "char-transformer" in said["submit"]
    assert "world_decided" in said["events"] or "generation 1" in said["events"]
    await eventually(lambda: not carriers(mark), 30)
    await nothing_is_left(mark)


async def _until_healthy(terminal: Terminal) -> None:
    for _ in range(600):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tradewind", "status", env=terminal.environ, stdout=DEVNULL, stderr=DEVNULL
        )
        if await process.wait() == 0:
            return
        await asyncio.sleep(0.2)
    pytest.fail("the master did not answer")


async def _until_running(terminal: Terminal) -> None:
    await _until_phase(terminal, "running")


async def _until_phase(terminal: Terminal, phase: str) -> None:
    view = None
    for _ in range(600):
        view = msgspec.json.decode(
            await terminal.run(".venv/bin/tradewind status char-transformer --json"), type=JobView, strict=False
        )
        if view.phase == phase:
            return
        await asyncio.sleep(0.2)
    pytest.fail(f"the job did not become {phase}: {view}")
