"""Streams: capped, idempotent, replayed in order."""

import asyncio

import pytest
from nats.aio.client import Client

from runtime.bus import Bus
from runtime.link import NotTaken
from runtime.nats_server import NatsServer
from tests.conftest import Connect, eventually
from tests.runtime.test_bus import an_event, raw_client, text_of

DAY_S = 86_400.0


async def texts_in(bus: Bus, subject: str = "ev.>", after: int = 0) -> list[str]:
    return [text_of(received) async for _subject, received in bus.replay("events", subject, after=after)]


async def configuration(client: Client, stream: str) -> tuple[int | None, float | None]:
    config = (await client.jetstream().stream_info(stream)).config
    return config.max_bytes, config.max_age


async def test_a_stream_is_replayed_in_order_and_by_subject(bus: Bus) -> None:
    await bus.ensure_stream("events", ["ev.>"], max_bytes=1_000_000, max_age_s=DAY_S)
    for number in range(20):
        await bus.publish_durable(f"ev.{'even' if number % 2 == 0 else 'odd'}", an_event(str(number)))
    assert await texts_in(bus) == [str(number) for number in range(20)]
    assert await texts_in(bus, "ev.even") == [str(number) for number in range(0, 20, 2)]


async def test_an_empty_stream_is_replayed_to_its_end(bus: Bus) -> None:
    await bus.ensure_stream("events", ["ev.>"], max_bytes=1_000_000, max_age_s=DAY_S)
    async with asyncio.timeout(20):
        assert await texts_in(bus) == []


async def test_a_replay_can_begin_behind_the_tail_that_was_read(bus: Bus) -> None:
    await bus.ensure_stream("events", ["ev.>"], max_bytes=1_000_000, max_age_s=DAY_S)
    await bus.publish_durable("ev.a", an_event("before"))
    tail = await bus.tail("events", "ev.>", 10, lambda received: [text_of(received)])
    await bus.publish_durable("ev.a", an_event("after"))
    assert (tail.items, await texts_in(bus, after=tail.sequence)) == (("before",), ["after"])


async def test_plain_publishes_are_kept_by_the_stream_too(bus: Bus) -> None:
    await bus.ensure_stream("events", ["ev.>"], max_bytes=10_000_000, max_age_s=DAY_S)
    for number in range(1000):
        bus.publish("ev.a", an_event(str(number)))
    found: list[str] = []
    async with asyncio.timeout(30):
        async for _subject, received in bus.replay("events", "ev.>", follow=True):
            found.append(text_of(received))
            if len(found) == 1000:
                break
    assert found == [str(number) for number in range(1000)]


async def test_large_messages_are_replayed_though_they_do_not_fit_in_one_batch(bus: Bus) -> None:
    await bus.ensure_stream("events", ["ev.>"], max_bytes=64_000_000, max_age_s=DAY_S)
    for number in range(25):
        await bus.publish_durable("ev.a", an_event(f"{number}:{'x' * 800_000}"))
    async with asyncio.timeout(60):
        found = await texts_in(bus)
    assert [text.partition(":")[0] for text in found] == [str(number) for number in range(25)]


async def test_a_full_stream_forgets_the_oldest(bus: Bus) -> None:
    await bus.ensure_stream("events", ["ev.>"], max_bytes=20_000, max_age_s=DAY_S)
    for number in range(100):
        await bus.publish_durable("ev.a", an_event(f"{number}:{'x' * 500}"))
    kept = [int(text.partition(":")[0]) for text in await texts_in(bus)]
    assert 0 < len(kept) < 100
    assert kept == list(range(100 - len(kept), 100))


async def test_a_stream_is_made_once_and_follows_new_caps(nats_server: NatsServer, connect: Connect) -> None:
    first, second = await connect("first"), await connect("second")
    await first.ensure_stream("events", ["ev.>"], max_bytes=1_000_000, max_age_s=DAY_S)
    await first.publish_durable("ev.a", an_event("kept"))
    await second.ensure_stream("events", ["ev.>"], max_bytes=1_000_000, max_age_s=DAY_S)
    await second.ensure_stream("events", ["ev.>"], max_bytes=2_000_000, max_age_s=60.0)
    client = await raw_client(nats_server)
    assert await configuration(client, "events") == (2_000_000, 60.0)
    await client.close()
    assert await texts_in(first) == ["kept"]


async def test_the_same_id_twice_is_stored_once(bus: Bus) -> None:
    await bus.ensure_stream("events", ["ev.>"], max_bytes=1_000_000, max_age_s=DAY_S)
    for _ in range(3):
        await bus.publish_durable("ev.a", an_event("once"), message_id="m1")
    await bus.publish_durable("ev.a", an_event("other"), message_id="m2")
    assert await texts_in(bus) == ["once", "other"]


async def test_what_no_stream_takes_is_an_error(bus: Bus) -> None:
    with pytest.raises(NotTaken, match="nowhere"):
        await bus.publish_durable("nowhere", an_event("x"), timeout_s=1.0)


async def test_what_cannot_be_read_in_a_stream_is_counted_and_passed_over(nats_server: NatsServer, bus: Bus) -> None:
    await bus.ensure_stream("events", ["ev.>"], max_bytes=1_000_000, max_age_s=DAY_S)
    client = await raw_client(nats_server)
    await client.jetstream().publish("ev.a", b"garbage")
    await client.close()
    await bus.publish_durable("ev.a", an_event("readable"))
    assert await texts_in(bus) == ["readable"]
    assert bus.dropped["malformed"] == 1


async def test_a_reader_that_leaves_frees_its_consumer(nats_server: NatsServer, bus: Bus) -> None:
    await bus.ensure_stream("events", ["ev.>"], max_bytes=1_000_000, max_age_s=DAY_S)
    await bus.publish_durable("ev.a", an_event("x"))
    before = len(bus._link.client._subs)
    assert await texts_in(bus) == ["x"]
    await eventually(lambda: len(bus._link.client._subs) == before)
