"""Where the command begins: Ctrl-C while it is being loaded, and a command that does not exist."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import tradewind

INTERRUPTS_WHO_LOADS_IT = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(20)\n"


def interrupted_when_loading(module: str, folder: Path, *, ignores: bool = False) -> subprocess.CompletedProcess[str]:
    text = INTERRUPTS_WHO_LOADS_IT if not ignores else INTERRUPTS_WHO_LOADS_IT.replace("20", "0") + "os._exit(7)\n"
    (folder / f"{module}.py").write_text(text)
    before = signal.getsignal(signal.SIGINT)
    if ignores:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.run(
            [sys.executable, "-P", "-m", "tradewind", "status"],
            env={"PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("module", ["click", "msgspec"])
def test_it_ends_with_130_and_without_a_word(module: str, tmp_path: Path) -> None:
    done = interrupted_when_loading(module, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_whoever_started_it_so_that_it_ignores_ctrl_c_is_respected(tmp_path: Path) -> None:
    assert interrupted_when_loading("click", tmp_path, ignores=True).returncode == 7


async def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    done = await tradewind("stauts", environ={})
    assert done.code == 2
    assert "Did you mean 'status'?" in done.err
