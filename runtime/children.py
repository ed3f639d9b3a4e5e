"""Processes that this process starts, or whose end it waits for (Linux)."""

import asyncio
import contextlib
import ctypes
import functools
import os
import random
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from runtime import proc

KILL_PAUSES_S = (0.005, 0.01, 0.02, 0.05, *(0.1 for _ in range(20)))
"""Seconds after each round of kills, about 2 in total. Most processes are gone after the first round."""
STOP_ROUNDS = 20
_KILLED_S = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

Output = int | IO[bytes] | None


async def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdin: Output = asyncio.subprocess.DEVNULL,
    stdout: Output = None,
    stderr: Output = None,
    pass_fds: Sequence[int] = (),
    dies_with_us: bool = False,
) -> asyncio.subprocess.Process:
    """Starts a process in its own session: it gets no signal of this terminal, and its group can be ended at once.

    `dies_with_us`: the kernel ends the process when this one is killed. Otherwise it continues.
    """
    return await asyncio.create_subprocess_exec(
        *argv,
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
        preexec_fn=_die_with_parent(os.getpid()) if dies_with_us else None,
    )


async def end(process: asyncio.subprocess.Process, grace_s: float) -> int | None:
    """Sends SIGTERM to the process and its group, and SIGKILL after the grace.

    Returns the exit code; None in the rare case that the kernel cannot end the process now.
    """
    try:
        signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await process.wait()
    finally:
        signal_group(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILLED_S):
            return await process.wait()
    return None


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_group(leader: int, number: signal.Signals) -> bool:
    """Signals a process group. Returns False if no process is left, or none may be signalled."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signals each process that exists and may be signalled."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_until_none(find: Callable[[], Collection[int]], pauses_s: Iterable[float] = KILL_PAUSES_S) -> Collection[int]:
    """Kills the processes that `find` returns until it returns none, with a limit. Returns the remaining ones.

    One round is not enough: a process may start others before it dies.
    """
    left = find()
    for pause_s in pauses_s:
        if not left:
            break
        send(left, signal.SIGKILL)
        time.sleep(pause_s)
        left = find()
    return left


async def kill_until_none_async(find: Callable[[], Awaitable[Collection[int]]]) -> Collection[int]:
    """Does what `kill_until_none` does without blocking the event loop."""
    left = await find()
    for pause_s in KILL_PAUSES_S:
        if not left:
            break
        send(left, signal.SIGKILL)
        await asyncio.sleep(pause_s)
        left = await find()
    return left


def stop_all(find: Callable[[], Iterable[int]]) -> list[int]:
    """Stops the processes that `find` returns until it returns no new ones. Returns the stopped processes.

    Stopped processes cannot start others. Bounded, because processes may start others faster than they are found.
    """
    stopped: dict[int, None] = {}
    for _ in range(STOP_ROUNDS):
        new = [pid for pid in find() if pid not in stopped and not is_dead(pid)]
        if not new:
            break
        send(new, signal.SIGSTOP)
        stopped |= dict.fromkeys(new)
    return [*stopped]


async def wait_exit(pid: int, timeout_s: float | None = None) -> bool:
    """Waits for the end of any process. Returns False after the timeout."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    loop.add_reader(handle, exited.set)
    try:
        async with asyncio.timeout(timeout_s):
            await exited.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    return True


def exit_code(pid: int) -> int | None:
    """Returns the exit code of a child without reaping it; a signal as its negative number; None if unknown."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return None
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def become_subreaper() -> None:
    """Makes this process a subreaper: orphans among its descendants become its children."""
    if _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants(pid: int) -> list[int]:
    """Returns the current descendants of a process, nearest first."""
    return below([pid])


def below(roots: Iterable[int]) -> list[int]:
    """Returns the current descendants of these processes, nearest first."""
    children: dict[int, list[int]] = {}
    for child in proc.pids():
        parent = parent_of(child)
        if parent is not None:
            children.setdefault(parent, []).append(child)
    found: list[int] = []
    waiting = [*roots]
    while waiting:
        born = children.get(waiting.pop(0), [])
        found += born
        waiting += born
    return found


def children_of(pid: int) -> list[int]:
    """Returns the children of a process, including those that have exited and are not reaped."""
    return [one for one in proc.pids() if parent_of(one) == pid]


def alive_below(pid: int) -> list[int]:
    """Returns the live descendants of a process."""
    return [one for one in descendants(pid) if not is_dead(one)]


def is_dead(pid: int) -> bool:
    stat = proc.stat(pid)
    return stat is None or stat.is_dead


def reap(pid: int) -> None:
    """Reaps a child that has exited. Does nothing for any other process."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def reap_adopted(own: Collection[int]) -> None:
    """Reaps exited children that are not in `own`: the orphans of a subreaper. Never blocks."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is not None:
            if ended.si_pid in own:
                return
            reap(ended.si_pid)


def parent_of(pid: int) -> int | None:
    """Returns the parent's pid; None if there is no such process."""
    stat = proc.stat(pid)
    return None if stat is None else stat.parent


def start_time_of(pid: int) -> int | None:
    """Returns clock ticks since boot, which identify a process together with its pid."""
    stat = proc.stat(pid)
    return None if stat is None else stat.start_ticks


PORTS = range(15_000, 32_000)
"""Ports below those that Linux chooses by itself (32768 and above)."""


def free_port(host: str = "127.0.0.1") -> int:
    """Returns a port on which no process listens now.

    Avoids the ports that the system gives to other processes, because one of them could take it before it is used."""
    for port in (*random.sample(PORTS, 100), 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            found: int = probe.getsockname()[1]
            return found
    raise OSError(f"no port is free at {host}")


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _die_with_parent(parent: int) -> Callable[[], None]:
    libc = _libc()

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child
