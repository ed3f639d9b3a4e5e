"""The newest messages of a stream, read from its end.

The server counts quickly how many messages of a subject follow a position. So the reader finds the start of a window by
counting, and windows grow towards the beginning until enough is found. The cost depends on the wanted number of
messages, not on the stored number, nor on messages of other subjects.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import nats.js.errors
from nats.js import api

from runtime import streams
from runtime.errors import BusUnavailable
from runtime.follow import Stored, Wanted, follow
from runtime.link import Link

T = TypeVar("T")

_FIRST_WINDOW = 64
"""Messages in the newest window; the minimum for any window."""
_GROWTH = 4
"""Factor by which an older window may be larger."""
_SLACK = 1.25
_UNUSED_S = 2.0
_API_TIMEOUT_S = 5.0
_TIMEOUT_S = 50.0


@dataclass(frozen=True, slots=True)
class Tail(Generic[T]):
    items: tuple[T, ...]
    """The items, oldest first."""
    sequence: int
    """The last sequence number of the stream when the reading began."""


async def read_tail(link: Link, wanted: Wanted, most: int, items_of: Callable[[Stored], Iterable[T]]) -> Tail[T]:
    """Returns at most `most` of the newest items in the stream's messages. Raises `BusUnavailable`."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await _Tailer(link, wanted).read(most, items_of)
    except TimeoutError:
        raise BusUnavailable(f"reading the end of stream {wanted.stream}: not done in {_TIMEOUT_S:.0f} s") from None


class _Tailer:
    def __init__(self, link: Link, wanted: Wanted) -> None:
        self._link = link
        self._wanted = wanted

    async def read(self, most: int, items_of: Callable[[Stored], Iterable[T]]) -> Tail[T]:
        state = (await self._look()).state
        found: deque[T] = deque()
        upper, count, read = min(await self._last(), state.last_seq) + 1, _FIRST_WINDOW, 0
        while len(found) < most and upper > state.first_seq:
            lower = await self._start(count, state.first_seq, upper)
            window: deque[T] = deque(maxlen=most - len(found))
            async with contextlib.aclosing(self._between(lower, upper)) as messages:
                async for stored in messages:
                    window.extend(items_of(stored))
                    read += 1
            found.extendleft(reversed(window))
            missing = (most - len(found)) * read // max(1, len(found)) + 1
            upper, count = lower, max(_FIRST_WINDOW, min(count * _GROWTH, missing))
        return Tail(tuple(found), state.last_seq)

    async def _start(self, count: int, first: int, upper: int) -> int:
        """Returns a position with about `count` messages before `upper`; `first` if there are fewer."""
        newer = await self._pending(upper)
        low, high, width = upper, upper, count
        while low > first:
            high, low = low, max(first, upper - width)
            if await self._pending(low) - newer >= count:
                break
            width *= _GROWTH
        while high - low > 1 and await self._pending(low) - newer > _SLACK * count:
            middle = (low + high) // 2
            if await self._pending(middle) - newer >= count:
                low = middle
            else:
                high = middle
        return low

    async def _between(self, lower: int, upper: int) -> AsyncGenerator[Stored, None]:
        wanted = Wanted(self._wanted.stream, self._wanted.subject, after=lower - 1)
        async with contextlib.aclosing(follow(self._link, wanted)) as messages:
            async for each in messages:
                if not isinstance(each, Stored) or each.sequence >= upper:
                    return
                yield each

    async def _last(self) -> int:
        """Returns the sequence number of the subject's newest message; 0 if there is none."""

        async def read() -> int:
            try:
                return (await self._link.jetstream.get_last_msg(self._wanted.stream, self._wanted.subject)).seq or 0
            except nats.js.errors.NotFoundError:
                return 0

        return await self._link.call(
            f"reading the end of stream {self._wanted.stream}", read, timeout_s=_API_TIMEOUT_S, harmless_twice=True
        )

    async def _look(self) -> api.StreamInfo:
        name = self._wanted.stream
        return await self._link.call(
            f"looking at stream {name}",
            lambda: streams.look(self._link, name),
            timeout_s=_API_TIMEOUT_S,
            harmless_twice=True,
        )

    async def _pending(self, sequence: int) -> int:
        """Returns the number of messages from this one on, which the server reports to a new consumer."""
        name = self._wanted.stream
        config = api.ConsumerConfig(
            ack_policy=api.AckPolicy.NONE,
            filter_subject=self._wanted.subject,
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=sequence,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=_UNUSED_S,
        )
        made = await self._link.call(
            f"counting in stream {name}",
            lambda: self._link.jetstream.add_consumer(name, config),
            timeout_s=_API_TIMEOUT_S,
            harmless_twice=True,
        )
        return made.num_pending or 0
