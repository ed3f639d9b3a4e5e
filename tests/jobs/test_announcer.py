import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from controlplane.jobs import announcer
from controlplane.jobs.announcer import DROPPED, REFUSED, Announcer
from messages.codec import MessageTooLarge
from messages.events import Event
from messages.ids import Epoch
from runtime.errors import BusRefused, BusUnavailable
from tests.conftest import eventually


class FlakyStreams:
    """A stream that refuses while it is away and, like a real one, stores each message id once."""

    def __init__(self, *, away: bool = False, answers_lost: int = 0) -> None:
        self.away = away
        self.answers_lost = answers_lost
        self.tries = 0
        self.refuses: dict[str, Exception] = {}
        self.stored: dict[str, tuple[str, Event, Epoch | None]] = {}

    async def publish_durable(
        self,
        subject: str,
        message: Event,
        *,
        message_id: str | None = None,
        epoch: Epoch | None = None,
        at: datetime | None = None,
    ) -> None:
        self.tries += 1
        await asyncio.sleep(0)
        if self.away:
            raise BusUnavailable("away")
        if message.text in self.refuses:
            raise self.refuses[message.text]
        assert message_id is not None
        self.stored.setdefault(message_id, (subject, message, epoch))
        if self.answers_lost:
            self.answers_lost -= 1
            raise BusUnavailable("the answer was lost")

    @property
    def texts(self) -> list[str]:
        return [event.text for _, event, _ in self.stored.values()]


@contextlib.asynccontextmanager
async def announcing(streams: FlakyStreams) -> AsyncIterator[Announcer]:
    made = Announcer(streams, Epoch(7))
    task = asyncio.create_task(made.run(), name="announcer")
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait({task})


def an_event(number: int) -> Event:
    return Event("job", "counted", str(number))


async def test_events_wait_for_the_bus_and_arrive_in_order_each_once() -> None:
    streams = FlakyStreams(away=True)
    async with announcing(streams) as made:
        for number in range(20):
            made.announce(an_event(number))
        await eventually(lambda: streams.tries >= 2, what="two tries")
        assert not made.idle
        streams.away = False
        streams.answers_lost = 3
        await eventually(lambda: made.idle, what="all to be sent")
    assert streams.texts == [str(number) for number in range(20)]
    assert {(subject, epoch) for subject, _, epoch in streams.stored.values()} == {("tradewind.event.job.counted", 7)}


async def test_too_many_waiting_events_drop_the_oldest_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcer, "AT_MOST", 5)
    streams = FlakyStreams(away=True)
    async with announcing(streams) as made:
        for number in range(8):
            made.announce(an_event(number))
        streams.away = False
        await eventually(lambda: made.idle, what="all to be sent")
    assert streams.texts == ["3", "4", "5", "6", "7"]
    assert made.dropped[DROPPED] == 3


async def test_an_event_that_the_bus_refuses_is_dropped_and_the_others_arrive() -> None:
    streams = FlakyStreams()
    streams.refuses = {"1": BusRefused("no such stream"), "2": MessageTooLarge("too large")}
    async with announcing(streams) as made:
        for number in range(4):
            made.announce(an_event(number))
        await eventually(lambda: made.idle, what="all to be sent")
    assert streams.texts == ["0", "3"]
    assert made.dropped[REFUSED] == 2


async def test_draining_is_bounded_while_the_bus_is_away() -> None:
    streams = FlakyStreams(away=True)
    async with announcing(streams) as made:
        made.announce(an_event(1))
        await made.drain(0.05)
        assert not made.idle
