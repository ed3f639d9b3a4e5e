"""Child processes: ended with their group, seen at once when they exit, never left behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import uvloop

from runtime import children, proc
from tests.conftest import eventually

Start = Callable[..., Awaitable[asyncio.subprocess.Process]]

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(600)
"""
PARENT_OF_ONE = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
time.sleep(600)
"""
STARTS_ONE_THAT_DIES_WITH_IT = """
import asyncio
from runtime import children
async def main():
    child = await children.start(["sleep", "600"], dies_with_us=True)
    print(child.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
SUBREAPER = """
import os, time
from runtime import children
children.become_subreaper()
here, there = os.pipe()
middle = os.fork()
if not middle:
    if not os.fork():
        os.write(there, str(os.getpid()).encode())
        time.sleep(600)
    os._exit(0)
os.waitpid(middle, 0)
orphan = int(os.read(here, 100))
print(orphan, children.parent_of(orphan) == os.getpid(), flush=True)
time.sleep(600)
"""


REAPER = """
import os, subprocess
from runtime import children
children.become_subreaper()
own = subprocess.Popen(["sleep", "0"])
os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
children.reap_adopted([own.pid])
code = own.wait()
here, there = os.pipe()
middle = os.fork()
if not middle:
    if not os.fork():
        os.write(there, str(os.getpid()).encode())
    os._exit(0)
os.waitpid(middle, 0)
orphan = int(os.read(here, 100))
os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
children.reap_adopted([])
print(code, children.parent_of(orphan), flush=True)
"""


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[asyncio.subprocess.Process] = []

    async def start_python(source: str) -> asyncio.subprocess.Process:
        process = await children.start([sys.executable, "-c", source], stdout=asyncio.subprocess.PIPE)
        started.append(process)
        return process

    yield start_python
    for process in started:
        await children.end(process, grace_s=0.0)


async def first_line(process: asyncio.subprocess.Process) -> list[str]:
    assert process.stdout is not None
    async with asyncio.timeout(30):
        return (await process.stdout.readline()).decode().split()


async def test_a_polite_process_ends_on_sigterm(start: Start) -> None:
    process = await start("import time; print('ready', flush=True); time.sleep(600)")
    await first_line(process)
    assert await children.end(process, grace_s=30.0) == -signal.SIGTERM


async def test_a_stubborn_process_and_its_children_are_killed_after_the_grace(start: Start) -> None:
    process = await start(STUBBORN)
    grandchild = int((await first_line(process))[0])
    assert await children.end(process, grace_s=0.2) == -signal.SIGKILL
    assert await children.wait_exit(grandchild, timeout_s=30.0)


async def test_what_a_polite_process_leaves_behind_is_killed(start: Start) -> None:
    process = await start(PARENT_OF_ONE)
    grandchild = int((await first_line(process))[0])
    await children.end(process, grace_s=30.0)
    assert await children.wait_exit(grandchild, timeout_s=30.0)


async def test_ending_what_has_ended_gives_its_code(start: Start) -> None:
    process = await start("raise SystemExit(3)")
    async with asyncio.timeout(30):
        await process.wait()
    assert await children.end(process, grace_s=1.0) == 3


async def test_a_child_has_a_session_of_its_own(start: Start) -> None:
    process = await start("import os; print(os.getsid(0) == os.getpid(), flush=True)")
    assert await first_line(process) == ["True"]


async def test_the_exit_of_a_stranger_is_seen(start: Start) -> None:
    process = await start(PARENT_OF_ONE)
    grandchild = int((await first_line(process))[0])
    assert await children.wait_exit(grandchild, timeout_s=0.05) is False
    waiting = asyncio.create_task(children.wait_exit(grandchild, timeout_s=30.0))
    os.kill(grandchild, signal.SIGKILL)
    assert await waiting is True


async def test_a_process_that_never_was_has_exited(start: Start) -> None:
    process = await start("pass")
    async with asyncio.timeout(30):
        await process.wait()
    assert await children.wait_exit(process.pid) is True
    assert children.parent_of(process.pid) is None
    assert children.start_time_of(process.pid) is None
    assert children.signal_group(process.pid, signal.SIGTERM) is False


async def test_a_child_dies_with_a_parent_that_is_killed(start: Start) -> None:
    parent = await start(STARTS_ONE_THAT_DIES_WITH_IT)
    child = int((await first_line(parent))[0])
    parent.kill()
    assert await children.wait_exit(child, timeout_s=30.0)


async def test_descendants_are_found_nearest_first(start: Start) -> None:
    process = await start(PARENT_OF_ONE)
    grandchild = int((await first_line(process))[0])
    assert children.descendants(process.pid) == [grandchild]
    found = children.descendants(os.getpid())
    assert found.index(process.pid) < found.index(grandchild)
    assert children.parent_of(grandchild) == process.pid


async def test_a_subreaper_inherits_orphans(start: Start) -> None:
    process = await start(SUBREAPER)
    orphan, is_ours = await first_line(process)
    assert is_ours == "True"
    assert int(orphan) in children.descendants(process.pid)


async def test_a_subreaper_reaps_what_it_adopted_and_leaves_its_own_to_the_one_that_waits_for_them(
    start: Start,
) -> None:
    assert await first_line(await start(REAPER)) == ["0", "None"]


@pytest.fixture
def one_more() -> Iterator[Callable[[], list[int]]]:
    """Starts another process each time it is called and finds all of them: as a fork bomb does."""
    started: list[subprocess.Popen[bytes]] = []

    def find() -> list[int]:
        started.append(subprocess.Popen(["sleep", "600"]))
        return [process.pid for process in started if process.poll() is None]

    yield find
    for process in started:
        process.kill()
        process.wait()


def test_killing_until_none_is_left_ends_with_the_last_of_them() -> None:
    process = subprocess.Popen(["sleep", "600"])
    assert not children.kill_until_none(lambda: [process.pid] if process.poll() is None else [])
    assert process.returncode == -signal.SIGKILL


def test_killing_those_that_start_others_has_a_bound(one_more: Callable[[], list[int]]) -> None:
    assert children.kill_until_none(one_more, pauses_s=(0.0, 0.0))


async def test_killing_beside_the_event_loop_has_a_bound(
    one_more: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find() -> list[int]:
        return one_more()

    monkeypatch.setattr(children, "KILL_PAUSES_S", (0.0, 0.0))
    assert await children.kill_until_none_async(find)


async def test_stopping_those_that_start_others_has_a_bound(one_more: Callable[[], list[int]]) -> None:
    stopped = children.stop_all(one_more)
    assert len(stopped) == children.STOP_ROUNDS
    await eventually(lambda: all((stat := proc.stat(pid)) is not None and stat.state == "T" for pid in stopped))


async def test_the_start_time_tells_two_processes_apart(start: Start) -> None:
    first = await start("import time; print(1, flush=True); time.sleep(600)")
    await first_line(first)
    await asyncio.sleep(0.05)
    second = await start("import time; time.sleep(600)")
    times = children.start_time_of(first.pid), children.start_time_of(second.pid)
    assert times[0] is not None
    assert times[1] is not None
    assert times[0] < times[1]


def test_a_free_port_can_be_listened_on() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", children.free_port()))


def test_it_works_on_uvloop_too() -> None:
    async def story() -> tuple[int | None, bool]:
        process = await children.start([sys.executable, "-c", STUBBORN], stdout=asyncio.subprocess.PIPE)
        grandchild = int((await first_line(process))[0])
        code = await children.end(process, grace_s=0.1)
        return code, await children.wait_exit(grandchild, timeout_s=30.0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(story()) == (-signal.SIGKILL, True)


async def test_being_cancelled_while_ending_still_kills(start: Start) -> None:
    process = await start(STUBBORN)
    await first_line(process)
    ending = asyncio.create_task(children.end(process, grace_s=600.0))
    await asyncio.sleep(0.05)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    await eventually(lambda: process.returncode == -signal.SIGKILL)


def test_the_exit_code_of_a_child_is_known_before_it_is_reaped() -> None:
    for script, code in (("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)):
        child = subprocess.Popen([sys.executable, "-c", script])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert children.exit_code(child.pid) == code
        assert child.wait() == code
        assert children.exit_code(child.pid) is None
