"""The end of a stream is found from its end, whatever else the stream holds."""

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from messages import codec
from messages.codec import Received
from messages.events import Event
from runtime.bus import Bus
from runtime.nats_server import NatsServer
from tests.conftest import Connect, eventual_answer
from tests.runtime.test_bus import raw_client

STREAM = "lines"
DAY_S = 86_400.0


async def a_stream(bus: Bus) -> None:
    await bus.ensure_stream(STREAM, ["li.>"], max_bytes=1_000_000_000, max_age_s=DAY_S)


async def store(server: NatsServer, messages: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Each a subject and the lines of one message; sent together, without waiting for each."""
    client = await raw_client(server)
    jetstream = client.jetstream()
    last = (await jetstream.stream_info(STREAM)).state.last_seq
    for subject, lines in messages:
        message = Event(scope="fleet", kind="told", text="\n".join(lines))
        await client.publish(f"li.{subject}", codec.encode(codec.wrap(message, sender="test")))
        last += 1
    await eventual_answer(
        lambda: jetstream.stream_info(STREAM), lambda info: info.state.last_seq >= last, "it to be stored"
    )
    await client.close()


class Lines:
    """Takes messages apart, and counts them."""

    def __init__(self) -> None:
        self.messages = 0

    def __call__(self, received: Received) -> list[str]:
        self.messages += 1
        assert isinstance(received.message, Event)
        return received.message.text.split("\n")


async def tail_of(bus: Bus, subject: str, most: int) -> list[str]:
    async with asyncio.timeout(60):
        return list((await bus.tail(STREAM, f"li.{subject}", most, Lines())).items)


async def test_the_tail_of_a_job_is_its_own_though_others_write_between_and_after(
    nats_server: NatsServer, bus: Bus
) -> None:
    await a_stream(bus)
    mixed = ((f"job-{number % 3}.{number % 2}", [f"{number}"]) for number in range(3_000))
    await store(nats_server, [*mixed, *(("newest.0", [f"other {number}"]) for number in range(5_000))])
    of_one = [f"{number}" for number in range(3_000) if number % 3 == 1]
    lines = Lines()
    assert list((await bus.tail(STREAM, "li.job-1.*", 10, lines)).items) == of_one[-10:]
    assert lines.messages < 200, "no more was read than was needed"
    assert await tail_of(bus, "job-1.*", 700) == of_one[-700:]
    assert await tail_of(bus, "job-1.0", 5) == [line for line in of_one if int(line) % 2 == 0][-5:]
    assert await tail_of(bus, "newest.*", 2) == ["other 4998", "other 4999"]


@pytest.mark.parametrize("most", [0, 1, 7, 450, 599, 600, 601, 100_000])
async def test_a_tail_has_so_many_lines_or_all_that_there_are(nats_server: NatsServer, bus: Bus, most: int) -> None:
    await a_stream(bus)
    await store(nats_server, ((f"a.{n % 2}", [f"{n} first", f"{n} second", f"{n} third"]) for n in range(200)))
    every = [f"{n} {which}" for n in range(200) for which in ("first", "second", "third")]
    assert await tail_of(bus, "a.*", most) == every[max(0, 600 - most) :]


async def test_a_stream_in_which_nothing_is_stored_has_an_empty_tail(nats_server: NatsServer, bus: Bus) -> None:
    await a_stream(bus)
    assert await tail_of(bus, "a.*", 10) == []
    await store(nats_server, [("b.0", ["another's"])])
    assert await tail_of(bus, "a.*", 10) == []


async def test_the_oldest_lines_may_be_forgotten_while_the_tail_is_read(nats_server: NatsServer, bus: Bus) -> None:
    await bus.ensure_stream(STREAM, ["li.>"], max_bytes=60_000, max_age_s=DAY_S)
    await store(nats_server, (("a.0", [f"{number}", "x" * 300]) for number in range(1_000)))
    kept = await tail_of(bus, "a.*", 100_000)
    assert 0 < len(kept) < 2_000
    assert kept[-2] == "999"


async def test_what_comes_after_the_tail_follows_it_without_a_gap(nats_server: NatsServer, connect: Connect) -> None:
    bus = await connect()
    await a_stream(bus)
    await store(nats_server, (("a.0", [f"{number}"]) for number in range(300)))
    tail = await bus.tail(STREAM, "li.a.*", 3, Lines())
    await store(nats_server, [("b.0", ["another's"]), ("a.0", ["300"]), ("a.0", ["301"])])
    seen = list(tail.items)
    async with asyncio.timeout(60):
        async for _, received in bus.replay(STREAM, "li.a.*", after=tail.sequence, follow=True):
            seen.extend(Lines()(received))
            if seen[-1] == "301":
                break
    assert seen == ["297", "298", "299", "300", "301"]
