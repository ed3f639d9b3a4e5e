"""The queue of operations: one at a time on a pool, a few at a time in a cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from messages.ids import ClusterName
from runtime.errors import Temporary


class NoTurn(Temporary):
    """Other operations did not end in time."""


@dataclass(slots=True)
class _Line:
    places: asyncio.Semaphore
    users: int = 0
    running: dict[object, str] = field(default_factory=dict)


class Turns:
    def __init__(self, at_once: int, wait_s: float) -> None:
        self._at_once = at_once
        self._wait_s = wait_s
        self._lines: dict[tuple[str, ...], _Line] = {}

    @asynccontextmanager
    async def turn(self, cluster: ClusterName, pool: str | None, what: str) -> AsyncIterator[None]:
        """Wait until the operation may run. Without a pool it concerns the cluster itself. Raises `NoTurn`.

        It waits for its pool first and then for its cluster, so that operations that wait for a pool do not block
        operations on other pools of the cluster.
        """
        lines = (((cluster, pool or ""), 1), ((cluster,), self._at_once))
        async with AsyncExitStack() as held:
            waiting_at: tuple[str, ...] = ()
            try:
                async with asyncio.timeout(self._wait_s):
                    for waiting_at, places in lines:
                        await held.enter_async_context(self._place(waiting_at, places, what))
            except TimeoutError:
                raise NoTurn(self._describe_running(waiting_at)) from None
            yield

    @asynccontextmanager
    async def _place(self, key: tuple[str, ...], places: int, what: str) -> AsyncIterator[None]:
        line = self._lines.setdefault(key, _Line(asyncio.Semaphore(places)))
        line.users += 1
        me = object()
        try:
            async with line.places:
                line.running[me] = what
                yield
        finally:
            line.running.pop(me, None)
            line.users -= 1
            if not line.users:
                del self._lines[key]

    def _describe_running(self, key: tuple[str, ...]) -> str:
        line = self._lines.get(key)
        running = ", ".join(line.running.values()) if line is not None else ""
        return f"other operations still run after a wait of {self._wait_s:g} s: {running or 'unknown'}"
