"""The durable state: compare-and-set, deletions, and watches that show each change once."""

import asyncio

import pytest

from runtime.bus import Bus, Entry
from runtime.errors import BusUnavailable, Conflict, TooLarge
from runtime.nats_server import NatsServer
from tests.conftest import Connect, eventually


class Watched:
    def __init__(self) -> None:
        self.reported: list[tuple[str, bytes | None]] = []

    def __call__(self, key: str, entry: Entry | None) -> None:
        self.reported.append((key, None if entry is None else entry.value))


async def test_what_was_put_is_got(bus: Bus) -> None:
    bucket = await bus.bucket("b")
    assert await bucket.get("jobs.a.spec") is None
    revision = await bucket.put("jobs.a.spec", b"1")
    assert await bucket.get("jobs.a.spec") == Entry(b"1", revision)


async def test_an_empty_value_is_a_value(bus: Bus) -> None:
    bucket = await bus.bucket("b")
    await bucket.put("k", b"")
    entry = await bucket.get("k")
    assert entry is not None
    assert entry.value == b""


async def test_an_update_at_the_known_revision_is_taken(bus: Bus) -> None:
    bucket = await bus.bucket("b")
    first = await bucket.put("k", b"1")
    second = await bucket.update("k", b"2", first)
    assert second > first
    assert await bucket.get("k") == Entry(b"2", second)


async def test_an_update_at_an_older_revision_is_a_conflict_and_changes_nothing(connect: Connect) -> None:
    mine, theirs = await (await connect("a")).bucket("b"), await (await connect("c")).bucket("b")
    revision = await mine.put("k", b"1")
    newer = await theirs.update("k", b"theirs", revision)
    with pytest.raises(Conflict):
        await mine.update("k", b"mine", revision)
    assert await mine.get("k") == Entry(b"theirs", newer)


async def test_of_many_who_create_a_key_one_succeeds(connect: Connect) -> None:
    buckets = [await (await connect(f"c{n}")).bucket("b") for n in range(4)]

    async def create(number: int) -> bool:
        try:
            await buckets[number].update("leader", str(number).encode(), 0)
        except Conflict:
            return False
        return True

    won = await asyncio.gather(*(create(number) for number in range(4)))
    assert sum(won) == 1
    entry = await buckets[0].get("leader")
    assert entry is not None
    assert entry.value == str(won.index(True)).encode()


async def test_a_deleted_key_is_gone_and_can_be_created_again(bus: Bus) -> None:
    bucket = await bus.bucket("b")
    await bucket.put("k", b"1")
    await bucket.delete("k")
    assert await bucket.get("k") is None
    assert await bucket.entries() == {}
    await bucket.create("k", b"2")
    with pytest.raises(Conflict, match="exists already"):
        await bucket.create("k", b"3")


async def test_entries_follow_the_pattern(bus: Bus) -> None:
    bucket = await bus.bucket("b")
    assert await bucket.entries() == {}
    for key in ("jobs.a.spec", "jobs.b.spec", "jobs.a.world", "fleet.local.known"):
        await bucket.put(key, key.encode())
    await bucket.delete("jobs.b.spec")
    await bucket.put("jobs.c.spec", b"c")
    assert (await bucket.entries("jobs.*.spec")).keys() == {"jobs.a.spec", "jobs.c.spec"}
    assert (await bucket.entries()).keys() == {"fleet.local.known", "jobs.a.spec", "jobs.a.world", "jobs.c.spec"}
    assert (await bucket.entries("jobs.a.>")).keys() == {"jobs.a.spec", "jobs.a.world"}


async def test_more_keys_than_one_batch_are_all_listed(bus: Bus) -> None:
    bucket = await bus.bucket("b")
    await asyncio.gather(*(bucket.put(f"k.{number}", b"x") for number in range(600)))
    assert len(await bucket.entries()) == 600


async def test_a_watch_tells_what_is_there_before_it_returns_and_then_every_change(bus: Bus) -> None:
    bucket = await bus.bucket("b")
    await bucket.put("jobs.a.spec", b"0")
    await bucket.put("jobs.a.spec", b"1")
    await bucket.put("other", b"x")
    watched = Watched()
    await bucket.watch("jobs.>", watched)
    assert watched.reported == [("jobs.a.spec", b"1")]
    await bucket.put("jobs.b.spec", b"2")
    await bucket.put("other", b"y")
    await bucket.delete("jobs.a.spec")
    await eventually(lambda: len(watched.reported) == 3)
    assert watched.reported[1:] == [("jobs.b.spec", b"2"), ("jobs.a.spec", None)]


async def test_a_watch_of_an_empty_bucket_returns_too(bus: Bus) -> None:
    bucket = await bus.bucket("b")
    watched = Watched()
    await bucket.watch(">", watched)
    assert watched.reported == []


async def test_a_watch_that_was_ended_tells_nothing_more(bus: Bus) -> None:
    bucket = await bus.bucket("b")
    ended, other = Watched(), Watched()
    subscription = await bucket.watch(">", ended)
    await bucket.watch(">", other)
    await subscription.unsubscribe()
    await bucket.put("k", b"1")
    await eventually(lambda: other.reported)
    assert ended.reported == []
    assert bus.connected


async def test_a_watcher_that_raises_ends_the_bus(bus: Bus) -> None:
    bucket = await bus.bucket("b")

    def broken(_key: str, _entry: Entry | None) -> None:
        raise LookupError("a defect")

    await bucket.watch(">", broken)
    await bucket.put("k", b"1")
    async with asyncio.timeout(20):
        with pytest.raises(LookupError):
            await bus.run()


async def test_state_is_still_there_after_the_server_was_killed(nats_server: NatsServer, bus: Bus) -> None:
    bucket = await bus.bucket("b")
    revision = await bucket.put("k", b"1")
    await nats_server.kill()
    await nats_server.start()
    assert await bucket.get("k") == Entry(b"1", revision)
    assert (await (await bus.bucket("b")).entries()).keys() == {"k"}


async def test_without_a_server_everything_ends_in_time(nats_server: NatsServer, bus: Bus) -> None:
    bucket = await bus.bucket("b", timeout_s=0.3)
    await nats_server.kill()
    await eventually(lambda: not bus.connected)
    async with asyncio.timeout(20):
        for attempt in (bucket.get("k"), bucket.put("k", b""), bucket.entries(), bucket.watch(">", Watched())):
            with pytest.raises(BusUnavailable):
                await attempt


async def test_a_value_that_the_server_does_not_accept_is_refused_at_once(bus: Bus) -> None:
    bucket = await bus.bucket("b")
    with pytest.raises(TooLarge, match="writing k"):
        await bucket.put("k", b"x" * 2_000_000)
    assert await bucket.get("k") is None
