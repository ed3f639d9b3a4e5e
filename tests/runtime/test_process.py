"""A real process, real signals: it is asked, then forced, and always ends with the right code."""

import asyncio
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from runtime import children
from runtime.errors import BusUnavailable, UserError
from runtime.exit_codes import EXIT_UNREACHABLE
from runtime.process import Stop, known_error

Spawn = Callable[..., Awaitable["Script"]]

MESSAGE = "There is no file x"
HINT = "another name"
PREAMBLE = """
import asyncio, os, signal, sys, time
from runtime import logs
from runtime.errors import BusUnavailable, UserError
from runtime.process import run
logs.configure("test")
"""


class Script:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            return (await self.process.stdout.readline()).decode().strip()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def end(self) -> tuple[int, str]:
        """Returns the exit code and standard error."""
        async with asyncio.timeout(30):
            _out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


@pytest.fixture
async def spawn() -> AsyncIterator[Spawn]:
    started: list[asyncio.subprocess.Process] = []

    async def start(main: str, options: str = "") -> Script:
        source = f"{PREAMBLE}{textwrap.dedent(main)}\nsys.exit(run(main{options}))\n"
        pipe = asyncio.subprocess.PIPE
        process = await children.start([sys.executable, "-c", source], stdout=pipe, stderr=pipe, dies_with_us=True)
        started.append(process)
        return Script(process)

    yield start
    for process in started:
        await children.end(process, grace_s=0.0)


async def test_the_exit_code_is_what_main_returned(spawn: Spawn) -> None:
    script = await spawn("async def main(stop): return 7")
    assert await script.end() == (7, "")


async def test_the_first_signal_asks_and_main_ends_in_its_own_time(spawn: Spawn) -> None:
    script = await spawn(
        """
        async def main(stop):
            print("ready", flush=True)
            await stop.wait()
            print(stop.signal.name, stop.forced.is_set(), flush=True)
            return 0
        """
    )
    assert await script.line() == "ready"
    script.send(signal.SIGTERM)
    assert await script.line() == "SIGTERM False"
    code, said = await script.end()
    assert code == 0
    assert "stopping" in said


async def test_ctrl_c_ends_with_130(spawn: Spawn) -> None:
    script = await spawn(
        """
        async def main(stop):
            print("ready", flush=True)
            await stop.wait()
            return 0
        """
    )
    await script.line()
    script.send(signal.SIGINT)
    code, said = await script.end()
    assert code == 130
    assert "Traceback" not in said


async def test_the_second_signal_forces(spawn: Spawn) -> None:
    script = await spawn(
        """
        async def main(stop):
            print("ready", flush=True)
            await stop.wait()
            print("asked", flush=True)
            await stop.forced.wait()
            return 5
        """
    )
    await script.line()
    script.send(signal.SIGTERM)
    assert await script.line() == "asked"
    script.send(signal.SIGTERM)
    code, _said = await script.end()
    assert code == 5


async def test_the_one_that_does_not_drain_in_time_is_cancelled(spawn: Spawn) -> None:
    script = await spawn(
        """
        async def main(stop):
            print("ready", flush=True)
            try:
                await asyncio.sleep(3600)
            finally:
                print("cleaned up", flush=True)
        """,
        ", drain_s=0.1, force_s=0.1",
    )
    await script.line()
    script.send(signal.SIGTERM)
    assert await script.line() == "cleaned up"
    code, said = await script.end()
    assert code == 143
    assert "stop_forced" in said


async def test_the_one_that_cannot_be_cancelled_does_not_hold_the_process(spawn: Spawn) -> None:
    script = await spawn(
        """
        async def main(stop):
            print("ready", flush=True)
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    pass
        """,
        ", drain_s=0.1, force_s=0.1",
    )
    await script.line()
    script.send(signal.SIGTERM)
    code, said = await script.end()
    assert code == 143
    assert "stop_abandoned" in said


@pytest.mark.parametrize(
    "raising",
    [
        f"raise UserError('{MESSAGE}', '{HINT}')",
        """
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail())
                await asyncio.sleep(3600)
        """,
    ],
)
async def test_a_users_mistake_is_a_sentence_and_what_to_try(spawn: Spawn, raising: str) -> None:
    script = await spawn(
        f"""
        async def fail(): raise UserError('{MESSAGE}', '{HINT}')
        async def main(stop):
            {textwrap.dedent(raising).strip().replace(chr(10), chr(10) + "            ")}
        """
    )
    assert await script.end() == (2, f"Error: {MESSAGE}\nTry: {HINT}\n")


async def test_all_problems_of_a_mistake_are_listed(spawn: Spawn) -> None:
    script = await spawn(f"async def main(stop): raise UserError('{MESSAGE}', problems=('a: one', 'b: two'))")
    assert await script.end() == (2, f"Error: {MESSAGE}\n  a: one\n  b: two\n")


async def test_a_bus_that_is_away_is_a_sentence_and_another_code(spawn: Spawn) -> None:
    script = await spawn(f"async def main(stop): raise BusUnavailable('{MESSAGE}')")
    assert await script.end() == (EXIT_UNREACHABLE, f"Error: {MESSAGE}\n")


async def test_a_defect_is_shown_with_its_trace(spawn: Spawn) -> None:
    script = await spawn("async def main(stop): raise LookupError('a defect')")
    code, said = await script.end()
    assert code == 1
    assert "LookupError: a defect" in said


async def test_a_signal_that_is_to_be_ignored_stays_ignored(spawn: Spawn) -> None:
    script = await spawn(
        """
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        async def main(stop):
            print("ready", flush=True)
            await stop.wait()
            print(stop.signal.name, flush=True)
            return 0
        """
    )
    await script.line()
    script.send(signal.SIGHUP)
    script.send(signal.SIGTERM)
    assert await script.line() == "SIGTERM"


async def test_it_can_be_asked_from_within_and_keeps_the_first_reason() -> None:
    stop = Stop()
    stop.ask("first")
    stop.ask("second")
    assert (stop.why, stop.signal, stop.forced.is_set()) == ("first", None, False)
    stop.on_signal(signal.SIGTERM)
    assert stop.forced.is_set()


def test_a_defect_beside_a_mistake_is_not_hidden() -> None:
    mistake, defect = UserError("a mistake"), LookupError("a defect")
    assert known_error(ExceptionGroup("", [ExceptionGroup("", [mistake])])) is mistake
    assert known_error(ExceptionGroup("", [mistake, defect])) is None
    assert isinstance(known_error(ExceptionGroup("", [BusUnavailable("away")])), BusUnavailable)
