"""Streams that continue when the master restarts: they reconnect with backoff and show each line once.

After a reconnect a stream starts at its beginning. The times of lines show which ones are new: within one source times
never decrease, and lines of the same time are counted.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from typing import Generic, Protocol, TypeVar

from messages.api import EventLine, LogLine
from runtime.retry import Backoff
from tradewind.client.errors import MasterAway

FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 3.0
PATIENCE_S = 120.0
"""Seconds without a master after which a follower stops."""


class Timed(Protocol):
    @property
    def at(self) -> float: ...


Line = TypeVar("Line", bound=Timed)


class Seen(Generic[Line]):
    """Distinguishes new lines from replayed ones. Its memory grows only with the number of sources."""

    def __init__(self, source_of: Callable[[Line], Hashable]) -> None:
        self._source_of = source_of
        self._newest: dict[Hashable, tuple[float, int]] = {}
        self._counted: dict[Hashable, int] = {}
        self._oldest = math.inf
        """Time of the oldest line in the first stream: with `tail`, replays must not show older ones."""
        self._replays = 0

    def replay(self) -> None:
        """Call this when the stream starts or restarts."""
        self._counted.clear()
        self._replays += 1

    def is_new(self, line: Line) -> bool:
        if self._replays <= 1:
            self._oldest = min(self._oldest, line.at)
        source = self._source_of(line)
        newest, count = self._newest.get(source, (self._floor(), 0))
        if line.at < newest:
            return False
        if line.at > newest:
            self._newest[source] = (line.at, 1)
            self._counted[source] = 1
            return True
        number = self._counted.get(source, 0) + 1
        self._counted[source] = number
        if number <= count:
            return False
        self._newest[source] = (line.at, number)
        return True

    def _floor(self) -> float:
        return self._oldest if self._oldest < math.inf else -math.inf


def source_of_line(line: LogLine) -> Hashable:
    """The source of a line: one worker, and so one clock."""
    return line.rank, line.generation, line.stderr


def source_of_event(event: EventLine) -> Hashable:
    return event.scope, event.kind


async def follow(
    open_stream: Callable[[], AsyncIterator[Line]],
    seen: Seen[Line],
    is_over: Callable[[], Awaitable[bool]],
    *,
    on_away: Callable[[str], None] = lambda why: None,
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[Line]:
    """New lines until `is_over`. A stream that breaks or ends earlier is opened again."""
    loop = asyncio.get_running_loop()
    away_since: float | None = None
    backoff = Backoff(FIRST_BACKOFF_S, MAX_BACKOFF_S)
    while True:
        seen.replay()
        try:
            async for line in open_stream():
                away_since = None
                backoff.reset()
                if seen.is_new(line):
                    yield line
            if await is_over():
                return
        except MasterAway as away:
            if away_since is None:
                away_since = loop.time()
                on_away(str(away))
            elif loop.time() - away_since > patience_s:
                hint = "start a master with `tradewind master`, then retry"
                raise MasterAway(f"{away} Gave up after {patience_s:g} s.", hint) from away
        await backoff.wait()
