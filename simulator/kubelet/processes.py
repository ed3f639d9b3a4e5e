"""Ends all processes of a container: children may have their own sessions, but have its mark in their environment."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection, Iterable

from runtime import children, proc
from runtime.logs import logger

MARK = "SIM_CONTAINER_ID"
_PREFIX = f"{MARK}=".encode()
_ROUNDS = 40
_PAUSE_S = 0.05


class Sweeper:
    """Scans the machine's processes; callers that come during a scan share the next one."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._begun = 0
        self._found: dict[str, list[int]] = {}

    async def kill_all(self, marks: Collection[str], leaders: Iterable[int] = ()) -> None:
        """Kills the groups of the leaders, then all processes with one of the marks until none is left."""
        for leader in leaders:
            children.signal_group(leader, signal.SIGKILL)
        left: list[int] = []
        for _ in range(_ROUNDS if marks else 0):
            found = await self._look()
            left = [pid for mark in marks for pid in found.get(mark, ())]
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(_PAUSE_S)
        if left:
            logger().warning("container_not_empty", processes=left)

    async def signal_all(self, marks: Collection[str], number: signal.Signals) -> None:
        """Signals all processes with one of the marks, twice: the second scan finds those started during the first."""
        for _ in range(2 if marks else 0):
            found = await self._look()
            for pid in (pid for mark in marks for pid in found.get(mark, ())):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    async def _look(self) -> dict[str, list[int]]:
        """The result of a scan that begins after this call."""
        wanted = self._begun + 1
        async with self._lock:
            if self._begun < wanted:
                self._begun += 1
                self._found = await asyncio.to_thread(marked_processes)
            return self._found


def marked_processes() -> dict[str, list[int]]:
    """Processes by mark. Defunct processes have no environment and so no mark."""
    found: dict[str, list[int]] = {}
    for pid in proc.pids():
        for variable in proc.environ(pid):
            if variable.startswith(_PREFIX):
                mark = variable.removeprefix(_PREFIX).decode(errors="replace")
                found.setdefault(mark, []).append(pid)
    return found
