"""The command as people start it: the only tests here that start a process. All others run the command in this one."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.builders import a_job_file, no_master, some_lines
from tests.cli.command import finished, started, tradewind_process
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually
from tradewind.cli import COMMANDS
from tradewind.terminal import output

INTERRUPTS_WHO_LOADS_IT = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(20)\n"
HEAVY = ("torch", "numpy", "nats", "aiohttp", "asyncio", "msgspec", "rich", "messages", "controlplane", "agents")
PROBE = """
import json, sys
from tradewind.cli import main
loaded = {{}}
for name in {names!r}:
    sys.argv = ["tradewind", *name.split(), "--help"]
    try:
        main()
    except SystemExit as end:
        loaded[name] = [end.code or 0, *(heavy for heavy in {heavy!r} if heavy in sys.modules)]
print("LOADED", json.dumps(loaded))
"""


def test_help_loads_nothing_heavy() -> None:
    """One process shows the help of the group and of every command; an import would stay loaded for all that follow."""
    names = ["", *COMMANDS]
    code = PROBE.format(names=names, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout.rpartition("LOADED")[2]) == {name: [0] for name in names}


@pytest.mark.parametrize(("arguments", "code"), [(("status",), 0), (("stauts",), 2)], ids=str)
async def test_a_process_ends_with_the_code_of_the_command(
    arguments: tuple[str, ...], code: int, master: FakeMaster
) -> None:
    assert (await tradewind_process(*arguments, environ=master.environ)).code == code


async def test_a_process_that_reaches_no_master_ends_with_3() -> None:
    assert (await tradewind_process("status", environ=no_master())).code == 3


async def test_a_worker_takes_the_file_of_its_host_as_an_option() -> None:
    done = await tradewind_process("worker", "--job", "mnist", "--host-file", "/nowhere/host.py", environ={})
    assert done.code == 2
    assert "/nowhere/host.py" in done.err and "--host-file" in done.err


async def test_logs_that_are_followed_end_with_the_job(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.lines = some_lines()[:1]
    process = await started("logs", "mnist", "--follow", environ=master.environ)
    await eventually(lambda: master.streams)
    master.lines += some_lines()[2:]
    master.end("mnist", "succeeded")
    done = await finished(process)
    assert (done.code, done.out) == (0, "[0] step 0\n[0] step 1\n")


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
    assert output.CLOSED in done.err
    assert "Traceback" not in done.err


async def test_an_interrupted_wait_says_that_the_job_continues(master: FakeMaster, tmp_path: Path) -> None:
    process = await started("submit", a_job_file(tmp_path), "--wait", environ=master.environ)
    await eventually(lambda: master.streams)
    process.send_signal(signal.SIGINT)
    done = await finished(process)
    assert done.code == 130
    assert done.hint == ["tradewind", "stop", "mnist"]
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
    assert said.decode().startswith("tradewind: ") and late.url in said.decode()
    assert (done.code, [spec.name for spec in late.submitted]) == (0, ["mnist"])


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


def test_the_one_that_started_it_so_that_it_ignores_ctrl_c_is_respected(tmp_path: Path) -> None:
    assert interrupted_when_loading("click", tmp_path, ignores=True).returncode == 7
