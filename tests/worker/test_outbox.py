"""Lines on their way to the log stream: batched, ordered, sent until they are stored, dropped only past a bound."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from agents.worker.outbox import BATCH_BYTES, BATCH_LINES, LogOutbox
from messages.codec import MAX_BYTES, encode, wrap
from messages.ids import Generation, Rank
from messages.worlds import LogLines
from runtime.errors import BusRefused, BusUnavailable
from tests.conftest import eventually
from tests.worker.builders import JOB, OWN

ONE, TWO = Generation(1), Generation(2)
R0, R1 = Rank(0), Rank(1)


class FakeStream:
    """A stream that stores the first batch of each id, unless `away` is set."""

    def __init__(self) -> None:
        self.stored: dict[str, LogLines] = {}
        self.tries = 0
        self.away = False
        self.refuses = False

    async def publish(self, subject: str, message: LogLines, message_id: str) -> None:
        self.tries += 1
        await asyncio.sleep(0)
        if self.away:
            raise BusUnavailable("away")
        if self.refuses:
            raise BusRefused("no")
        assert subject == f"tradewind.job.{JOB}.log.{message.rank}"
        self.stored.setdefault(message_id, message)

    def lines(self, rank: Rank, generation: Generation = ONE) -> list[str]:
        kept = [batch for batch in self.stored.values() if (batch.rank, batch.generation) == (rank, generation)]
        return [line for batch in kept for line in batch.lines]


@contextlib.asynccontextmanager
async def _running(outbox: LogOutbox) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(outbox.run(), name="outbox")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_lines_of_one_moment_travel_in_one_batch() -> None:
    stream = FakeStream()
    outbox = LogOutbox(JOB, OWN, stream.publish)
    async with _running(outbox):
        for line in range(5):
            outbox.add(ONE, R0, [f"line {line}"], stderr=False)
        await eventually(lambda: stream.stored)
    [batch] = stream.stored.values()
    assert batch == LogLines(JOB, R0, ONE, OWN, tuple(f"line {n}" for n in range(5)))


async def test_many_lines_are_cut_into_batches_that_follow_each_other() -> None:
    stream = FakeStream()
    outbox = LogOutbox(JOB, OWN, stream.publish)
    outbox.add(ONE, R0, [str(n) for n in range(3 * BATCH_LINES + 1)], stderr=False)
    async with _running(outbox):
        assert await outbox.flush(5.0)
    batches = list(stream.stored.values())
    assert [(batch.first_line, len(batch.lines)) for batch in batches] == [(0, 200), (200, 200), (400, 200), (600, 1)]
    assert stream.lines(R0) == [str(n) for n in range(601)]


async def test_a_change_of_stream_rank_or_generation_begins_a_batch_and_keeps_the_order() -> None:
    stream = FakeStream()
    outbox = LogOutbox(JOB, OWN, stream.publish)
    outbox.add(ONE, R0, ["out 0"], stderr=False)
    outbox.add(ONE, R1, ["other"], stderr=False)
    outbox.add(ONE, R0, ["err 1", "err 2"], stderr=True)
    outbox.add(ONE, R0, ["out 3"], stderr=False)
    outbox.add(TWO, R0, ["again"], stderr=False)
    async with _running(outbox):
        assert await outbox.flush(5.0)
    of_rank_0 = [batch for batch in stream.stored.values() if batch.rank == R0]
    assert [(b.generation, b.first_line, b.stderr) for b in of_rank_0] == [
        (ONE, 0, False),
        (ONE, 1, True),
        (ONE, 3, False),
        (TWO, 0, False),
    ]


async def test_what_the_bus_does_not_take_is_sent_again_until_it_does() -> None:
    stream = FakeStream()
    stream.away = True
    outbox = LogOutbox(JOB, OWN, stream.publish)
    async with _running(outbox):
        outbox.add(ONE, R0, ["first"], stderr=False)
        await eventually(lambda: stream.tries >= 2)
        outbox.add(ONE, R0, ["second"], stderr=False)
        assert not await outbox.flush(0.01)
        stream.away = False
        assert await outbox.flush(10.0)
    assert stream.lines(R0) == ["first", "second"]
    assert outbox.dropped_lines == 0


async def test_past_the_bound_the_oldest_lines_are_dropped_counted_and_seen_as_a_gap() -> None:
    stream = FakeStream()
    outbox = LogOutbox(JOB, OWN, stream.publish, max_lines=2 * BATCH_LINES)
    outbox.add(ONE, R0, [str(n) for n in range(5 * BATCH_LINES)], stderr=False)
    async with _running(outbox):
        assert await outbox.flush(5.0)
    kept = stream.lines(R0)
    assert kept == [str(n) for n in range(5 * BATCH_LINES)][-len(kept) :]
    assert outbox.dropped_lines + len(kept) == 5 * BATCH_LINES
    assert min(batch.first_line for batch in stream.stored.values()) == outbox.dropped_lines


async def test_a_batch_that_the_bus_refuses_is_dropped_and_the_next_goes_out() -> None:
    stream = FakeStream()
    stream.refuses = True
    outbox = LogOutbox(JOB, OWN, stream.publish)
    async with _running(outbox):
        outbox.add(ONE, R0, ["refused"], stderr=False)
        await eventually(lambda: outbox.dropped_lines == 1)
        stream.refuses = False
        outbox.add(ONE, R0, ["accepted"], stderr=False)
        assert await outbox.flush(5.0)
    assert stream.lines(R0) == ["accepted"]


async def test_the_worst_batch_still_fits_into_a_message() -> None:
    stream = FakeStream()
    outbox = LogOutbox(JOB, OWN, stream.publish)
    outbox.add(ONE, R0, ["\x01" * (64 * 1024)] * 4, stderr=False)
    async with _running(outbox):
        assert await outbox.flush(5.0)
    assert len(stream.lines(R0)) == 4
    assert all(len(encode(wrap(batch, sender="worker"))) < MAX_BYTES for batch in stream.stored.values())
    assert BATCH_BYTES * 6 < MAX_BYTES


async def test_nothing_to_send_is_flushed_at_once() -> None:
    outbox = LogOutbox(JOB, OWN, FakeStream().publish)
    assert await outbox.flush(0.0)
