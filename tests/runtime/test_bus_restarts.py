"""The server is killed and restarted, or hangs: subscriptions and watches continue, and no message comes twice."""

import asyncio
import os
import shutil
import signal
from pathlib import Path
from urllib.parse import urlparse

import pytest
import uvloop
from nats.aio.transport import TcpTransport
from nats.js.api import ConsumerConfig, ConsumerInfo

from messages.ids import Generation, JobName, Rank, WorkerId
from messages.worlds import LogLines
from runtime.bus import Bus, BusSettings, Entry
from runtime.errors import BusUnavailable, Conflict
from runtime.nats_server import NatsServer
from runtime.transport import Transport
from tests.conftest import Connect, eventually
from tests.runtime.test_bus import Heard, an_event, raw_client, text_of

STREAM = "events"
SUBJECTS = ["ev.>"]


class Watched:
    def __init__(self) -> None:
        self.reported: list[tuple[str, bytes | None]] = []

    def __call__(self, key: str, entry: Entry | None) -> None:
        self.reported.append((key, None if entry is None else entry.value))


async def restart(server: NatsServer, *buses: Bus) -> None:
    await server.kill()
    await eventually(lambda: not any(bus.connected for bus in buses))
    await server.start()
    await eventually(lambda: all(bus.connected for bus in buses))


async def test_being_away_and_back_is_told(nats_server: NatsServer, connect: Connect) -> None:
    changes: list[bool] = []
    bus = await connect("watching", changes.append)
    await restart(nats_server, bus)
    await eventually(lambda: changes == [False, True])


async def test_a_server_that_is_stopped_politely_is_waited_for_too(nats_server: NatsServer, connect: Connect) -> None:
    bus = await connect()
    heard = Heard()
    await bus.subscribe("t", heard)
    await nats_server.stop()
    await eventually(lambda: not bus.connected)
    await nats_server.start()
    await eventually(lambda: bus.connected)
    bus.publish("t", an_event("after"))
    await eventually(lambda: heard.texts == ["after"])


async def test_a_subscription_survives_the_server(nats_server: NatsServer, connect: Connect) -> None:
    sender, receiver = await connect("sender"), await connect("receiver")
    heard = Heard()
    await receiver.subscribe("t", heard)
    await restart(nats_server, sender, receiver)
    sender.publish("t", an_event("after"))
    await eventually(lambda: heard.texts == ["after"])


async def test_what_is_published_while_the_server_is_away_arrives_after(
    nats_server: NatsServer, connect: Connect
) -> None:
    bus = await connect()
    heard = Heard()
    await bus.subscribe("t", heard)
    await nats_server.kill()
    await eventually(lambda: not bus.connected)
    for number in range(50):
        bus.publish("t", an_event(str(number)))
    await nats_server.start()
    await eventually(lambda: len(heard.texts) == 50)
    assert heard.texts == [str(number) for number in range(50)]


async def test_a_watch_survives_the_server_and_tells_nothing_twice(nats_server: NatsServer, connect: Connect) -> None:
    bus = await connect()
    bucket = await bus.bucket("b")
    await bucket.put("before", b"1")
    watched = Watched()
    await bucket.watch(">", watched)
    await restart(nats_server, bus)
    await bucket.put("after", b"2")
    await eventually(lambda: ("after", b"2") in watched.reported, timeout_s=10.0)
    await restart(nats_server, bus)
    await bucket.put("after", b"3")
    await eventually(lambda: ("after", b"3") in watched.reported, timeout_s=10.0)
    assert watched.reported == [("before", b"1"), ("after", b"2"), ("after", b"3")]


async def test_a_watch_tells_what_changed_while_its_own_connection_was_away(
    nats_server: NatsServer, connect: Connect
) -> None:
    watching, writing = await connect("watching"), await connect("writing")
    bucket = await watching.bucket("b")
    watched = Watched()
    await bucket.watch(">", watched)
    await watching._link.client.force_reconnect()
    other = await writing.bucket("b")
    for number in range(5):
        await other.put(f"key{number}", b"x")
    await other.delete("key0")
    await eventually(lambda: watched.reported[-1:] == [("key0", None)])
    assert [key for key, _value in watched.reported if key != "key0"] == ["key1", "key2", "key3", "key4"]


async def test_a_watch_through_several_kills_tells_each_revision_once_and_ends_at_the_truth(
    nats_server: NatsServer, connect: Connect
) -> None:
    writing, watching = await connect("writing"), await connect("watching")
    bucket = await writing.bucket("b", timeout_s=30.0)
    revisions: list[int] = []
    last: dict[str, bytes] = {}

    def reported(key: str, entry: Entry | None) -> None:
        assert entry is not None
        revisions.append(entry.revision)
        last[key] = entry.value

    await (await watching.bucket("b")).watch(">", reported)

    async def write_all() -> None:
        for number in range(300):
            await bucket.put(f"key{number % 7}", str(number).encode())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_all())
        for _ in range(3):
            await asyncio.sleep(0.05)
            await nats_server.kill()
            await nats_server.start()
    await eventually(lambda: last == {f"key{number % 7}": str(number).encode() for number in range(293, 300)})
    assert revisions == sorted(set(revisions))


async def test_a_watch_whose_consumer_the_server_has_forgotten_continues(
    nats_server: NatsServer, connect: Connect
) -> None:
    bus = await connect()
    bucket = await bus.bucket("b")
    watched = Watched()
    await bucket.watch(">", watched)
    await bucket.put("k", b"1")
    stranger = await raw_client(nats_server)
    for consumer in await stranger.jsm().consumers_info("KV_b"):
        await stranger.jsm().delete_consumer("KV_b", consumer.name)
    await stranger.close()
    await bucket.put("k", b"2")
    await eventually(lambda: watched.reported == [("k", b"1"), ("k", b"2")])


async def test_a_watch_continues_when_the_server_has_lost_everything(nats_server: NatsServer, connect: Connect) -> None:
    bus = await connect()
    bucket = await bus.bucket("b")
    await bucket.put("lost", b"1")
    await bucket.put("kept", b"1")
    watched = Watched()
    await bucket.watch(">", watched)
    await nats_server.kill()
    await eventually(lambda: not bus.connected)
    for file in sorted((nats_server.folder / "jetstream").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    await nats_server.start()
    await eventually(lambda: ("lost", None) in watched.reported and ("kept", None) in watched.reported)
    await bucket.put("kept", b"2")
    await eventually(lambda: watched.reported[-1] == ("kept", b"2"))


async def test_a_watch_continues_though_the_server_loses_everything_just_when_it_begins(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = await bus.bucket("b")
    server = bus._link.jetstream
    add_consumer = server.add_consumer
    losses = iter((True, True, False))

    async def after_a_loss(stream: str, config: ConsumerConfig) -> ConsumerInfo:
        if next(losses, False):
            await server.delete_stream(stream)
        return await add_consumer(stream, config)

    monkeypatch.setattr(server, "add_consumer", after_a_loss)
    watched = Watched()
    await bucket.watch(">", watched)
    await bucket.put("k", b"1")
    await eventually(lambda: watched.reported == [("k", b"1")])
    assert bus.connected


async def test_a_stream_that_the_server_has_lost_is_made_again_by_its_maker_for_the_one_that_sends(
    nats_server: NatsServer, connect: Connect
) -> None:
    maker, sender = await connect("maker"), await connect("sender")
    await maker.ensure_stream(STREAM, SUBJECTS, max_bytes=1_000_000, max_age_s=3600)
    await sender.publish_durable("ev.a", an_event("before"))
    await nats_server.kill()
    shutil.rmtree(nats_server.folder / "jetstream")
    await nats_server.start()
    await sender.publish_durable("ev.a", an_event("after"), timeout_s=20.0)
    kept = [text_of(received) async for _, received in sender.replay(STREAM, "ev.>")]
    assert kept == ["after"]


async def test_a_write_that_compares_with_what_the_server_has_lost_never_comes_through(
    nats_server: NatsServer, connect: Connect
) -> None:
    bucket = await (await connect()).bucket("state")
    known = await bucket.create("key", b"1")
    await nats_server.kill()
    shutil.rmtree(nats_server.folder / "jetstream")
    await nats_server.start()
    other = await (await connect()).bucket("state")
    written = await other.create("key", b"by another one, just as early in the life of its bus")
    assert written > known
    with pytest.raises(Conflict):
        await bucket.update("key", b"2", known)
    await nats_server.kill()
    await nats_server.start()
    assert await other.update("key", b"3", written) == written + 1, "one that kept its data goes on"


async def test_a_durable_publish_waits_for_the_server_and_is_stored_once(
    nats_server: NatsServer, connect: Connect
) -> None:
    bus = await connect()
    await bus.ensure_stream(STREAM, SUBJECTS, max_bytes=1_000_000, max_age_s=3600)
    await bus.publish_durable("ev.a", an_event("first"), message_id="m1")
    await nats_server.kill()
    await eventually(lambda: not bus.connected)
    again = asyncio.create_task(bus.publish_durable("ev.a", an_event("first"), message_id="m1", timeout_s=30.0))
    late = asyncio.create_task(bus.publish_durable("ev.a", an_event("second"), timeout_s=30.0))
    await nats_server.start()
    await again
    await late
    await bus.publish_durable("ev.a", an_event("first"), message_id="m1")
    texts = [text_of(received) async for _subject, received in bus.replay(STREAM, "ev.>")]
    assert sorted(texts) == ["first", "second"]


async def test_publishes_through_several_kills_are_stored_once_each(nats_server: NatsServer, connect: Connect) -> None:
    bus = await connect()
    await bus.ensure_stream(STREAM, SUBJECTS, max_bytes=1_000_000, max_age_s=3600)

    async def publish_all() -> None:
        for number in range(150):
            await bus.publish_durable("ev.a", an_event(str(number)), timeout_s=30.0)

    publishing = asyncio.create_task(publish_all())
    for _ in range(2):
        await asyncio.sleep(0.05)
        await nats_server.kill()
        await nats_server.start()
    await publishing
    texts = [text_of(received) async for _subject, received in bus.replay(STREAM, "ev.>")]
    assert texts == [str(number) for number in range(150)]


async def test_a_durable_publish_without_a_server_raises_in_time(nats_server: NatsServer, connect: Connect) -> None:
    bus = await connect()
    await nats_server.kill()
    await eventually(lambda: not bus.connected)
    async with asyncio.timeout(20):
        with pytest.raises(BusUnavailable):
            await bus.publish_durable("ev.a", an_event("x"), timeout_s=0.2)
        with pytest.raises(BusUnavailable):
            await bus.request("q", an_event("x"), timeout_s=0.2)


async def test_following_a_stream_continues_across_a_restart(nats_server: NatsServer, connect: Connect) -> None:
    bus = await connect()
    await bus.ensure_stream(STREAM, SUBJECTS, max_bytes=1_000_000, max_age_s=3600)
    texts: list[str] = []

    async def follow() -> None:
        async for _subject, received in bus.replay(STREAM, "ev.>", follow=True):
            texts.append(text_of(received))

    following = asyncio.create_task(follow())
    await bus.publish_durable("ev.a", an_event("before"))
    await eventually(lambda: texts == ["before"])
    await restart(nats_server, bus)
    await bus.publish_durable("ev.a", an_event("after"))
    await eventually(lambda: texts == ["before", "after"])
    following.cancel()


async def test_a_server_that_hangs_is_seen_though_bytes_are_still_unsent(nats_server: NatsServer) -> None:
    changes: list[bool] = []
    bus = await Bus.connect(BusSettings(url=nats_server.url), changes.append)
    os.kill(nats_server.pid, signal.SIGSTOP)
    try:
        lines = LogLines(JobName("j"), Rank(0), Generation(1), WorkerId("w"), lines=("x" * 500_000,))
        for _ in range(20):
            bus.publish("t", lines)
        await eventually(lambda: changes == [False], timeout_s=30.0)
    finally:
        os.kill(nats_server.pid, signal.SIGCONT)
    await eventually(lambda: changes == [False, True], timeout_s=30.0)
    await bus.close()


async def test_a_connection_that_cannot_be_written_to_any_more_is_replaced_and_nothing_is_lost(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behaves like uvloop between the loss of a connection and its report."""
    changes: list[bool] = []
    sender, receiver = await connect("sender", changes.append), await connect("receiver")
    heard = Heard()
    await receiver.subscribe("t", heard)

    def closed(*_payload: object) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    transport = sender._link.client._transport
    assert isinstance(transport, TcpTransport)
    for write in ("write", "writelines"):
        monkeypatch.setattr(transport._io_writer, write, closed)
    for number in range(3):
        sender.publish("t", an_event(str(number)))
        await asyncio.sleep(0.01)
    await eventually(lambda: heard.texts == ["0", "1", "2"])
    assert changes == [False, True]


def test_on_uvloop_writing_to_a_connection_that_has_gone_breaks_it_as_elsewhere() -> None:
    async def story() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = Transport()
        await transport.connect(urlparse(f"nats://127.0.0.1:{port}"), buffer_size=1000, connect_timeout=20)
        assert transport._io_writer is not None
        transport._io_writer.transport.abort()
        await asyncio.sleep(0.05)
        transport.write(b"PING")
        with pytest.raises(ConnectionResetError):
            transport.writelines([b"PUB"])
        server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


def test_on_the_loop_that_processes_run_on_it_is_the_same(tmp_path: Path) -> None:
    async def story() -> tuple[list[str], list[tuple[str, bytes | None]]]:
        heard, watched = Heard(), Watched()
        async with NatsServer(tmp_path) as server:
            bus = await Bus.connect(BusSettings(url=server.url, connect_timeout_s=20.0))
            bucket = await bus.bucket("b")
            await bus.subscribe("t", heard)
            await bucket.watch(">", watched)
            await restart(server, bus)
            bus.publish("t", an_event("after"))
            await bucket.put("k", b"1")
            await eventually(lambda: heard.texts and watched.reported)
            await bus.drain(timeout_s=10.0)
        return heard.texts, watched.reported

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(story()) == (["after"], [("k", b"1")])
