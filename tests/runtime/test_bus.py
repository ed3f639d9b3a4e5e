"""Messages over a real NATS server: in order, answered or not, and never stopped by what cannot be read."""

import asyncio
import contextlib
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from messages.clusters import Answer
from messages.codec import MAX_BYTES, MessageTooLarge, Received
from messages.events import Event
from messages.ids import Epoch, Generation, JobName, Rank, WorkerId
from messages.worlds import LogLines
from runtime import causes
from runtime.bus import TOO_LARGE, Bus, BusSettings
from runtime.causes import Cause
from runtime.errors import BusAway, BusClosed, NoAnswer, TooLarge, UserError
from runtime.nats_server import NatsServer
from tests.conftest import Connect, eventually


def an_event(text: str) -> Event:
    return Event(scope="fleet", kind="told", text=text)


def text_of(received: Received) -> str:
    assert isinstance(received.message, Event)
    return received.message.text


class Heard:
    """Remembers the texts of the events it hears."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.received: list[tuple[str, Received]] = []

    def __call__(self, subject: str, received: Received) -> None:
        self.received.append((subject, received))
        self.texts.append(text_of(received))


async def raw_client(server: NatsServer) -> Client:
    return await nats.connect(server.url)


async def test_messages_arrive_in_the_order_they_were_published(connect: Connect) -> None:
    sender, receiver = await connect("sender"), await connect("receiver")
    heard = Heard()
    await receiver.subscribe("t.>", heard)
    for number in range(1000):
        sender.publish(f"t.{number % 3}", an_event(str(number)))
    await eventually(lambda: len(heard.texts) == 1000)
    assert heard.texts == [str(number) for number in range(1000)]


async def test_the_envelope_names_the_sender_and_what_it_said_of_the_message(connect: Connect) -> None:
    sender, receiver = await connect("master/host-1"), await connect("receiver")
    heard = Heard()
    await receiver.subscribe("t", heard)
    cause = Cause("m0", "worker.left from worker/w1")
    with causes.caused_by(cause):
        sender.publish("t", an_event("x"), epoch=Epoch(3), generation=Generation(2))
    await eventually(lambda: heard.received)
    subject, received = heard.received[0]
    assert subject == "t"
    envelope = received.envelope
    assert (envelope.sender, envelope.epoch, envelope.generation) == ("master/host-1", 3, 2)
    assert (envelope.caused_by, envelope.cause) == (cause.message_id, cause.text)


async def test_what_is_sent_while_a_message_is_handled_names_that_message(connect: Connect) -> None:
    first, second = await connect("first"), await connect("second")
    heard = Heard()
    await first.subscribe("answers", heard)
    await second.subscribe("t", lambda subject, received: second.publish("answers", an_event("y")))
    first.publish("t", an_event("x"))
    await eventually(lambda: heard.received)
    envelope = heard.received[0][1].envelope
    assert envelope.cause is not None and envelope.cause.split()[0::2] == ["event", "first"]
    assert envelope.caused_by and envelope.caused_by != envelope.id
    second.publish("answers", an_event("z"))
    await eventually(lambda: len(heard.received) == 2)
    assert heard.received[1][1].envelope.caused_by is None


async def test_what_cannot_be_read_is_counted_and_dropped_and_the_subscription_continues(
    nats_server: NatsServer, connect: Connect
) -> None:
    bus = await connect()
    heard = Heard()
    await bus.subscribe("t", heard)
    stranger = await raw_client(nats_server)
    await stranger.publish("t", b"not json")
    await stranger.publish("t", b"\xff\x00")
    await stranger.publish("t", b'{"v": 99}')
    await stranger.publish("t", b"x" * (MAX_BYTES + 1))
    await eventually(lambda: bus.dropped.total() == 4)
    bus.publish("t", an_event("still here"))
    await eventually(lambda: heard.texts)
    await stranger.close()
    assert heard.texts == ["still here"]
    assert bus.dropped == {"malformed": 2, "newer_version": 1, "oversized": 1}


async def test_a_request_is_answered(connect: Connect) -> None:
    asking, answering = await connect("asking"), await connect("answering")

    async def answer(subject: str, received: Received) -> Answer:
        return Answer(ok=True, why=f"{subject}: {text_of(received)}")

    await answering.serve("q", answer)
    received = await asking.request("q", an_event("well?"), timeout_s=10.0)
    assert received.message == Answer(ok=True, why="q: well?")
    assert received.envelope.sender == "answering"


async def test_many_requests_at_once_are_all_answered(connect: Connect) -> None:
    asking, answering = await connect("asking"), await connect("answering")

    async def answer(_subject: str, received: Received) -> Answer:
        await asyncio.sleep(0.01)
        return Answer(ok=True, why=text_of(received))

    await answering.serve("q", answer)
    answers = await asyncio.gather(*(asking.request("q", an_event(str(n)), timeout_s=20.0) for n in range(100)))
    assert [answer.message for answer in answers] == [Answer(ok=True, why=str(n)) for n in range(100)]


async def test_a_request_to_nobody_fails_at_once(bus: Bus) -> None:
    async with asyncio.timeout(20):
        with pytest.raises(NoAnswer, match="nobody"):
            await bus.request("nobody", an_event("hello?"), timeout_s=3600.0)


async def test_a_request_that_is_not_answered_ends_in_time(bus: Bus) -> None:
    async def never(_subject: str, _received: Received) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    await bus.serve("q", never)
    with pytest.raises(NoAnswer, match=r"0\.1 s"):
        await bus.request("q", an_event("hello?"), timeout_s=0.1)


async def test_an_unreadable_request_is_answered_with_why(nats_server: NatsServer, bus: Bus) -> None:
    async def answer(_subject: str, _received: Received) -> Answer:
        return Answer(ok=True)

    await bus.serve("q", answer)
    stranger = await raw_client(nats_server)
    reply = await stranger.request("q", b"garbage", timeout=10)
    await stranger.close()
    assert b'"ok":false' in reply.data
    assert bus.dropped["malformed"] == 1


async def test_an_unreadable_answer_is_no_answer(nats_server: NatsServer, bus: Bus) -> None:
    stranger = await raw_client(nats_server)

    async def garbage(message: Msg) -> None:
        await message.respond(b"garbage")

    await stranger.subscribe("q", cb=garbage)
    await stranger.flush()
    await stranger.flush()
    with pytest.raises(NoAnswer, match="malformed"):
        await bus.request("q", an_event("hello?"), timeout_s=10.0)
    await stranger.close()
    assert bus.dropped["malformed"] == 1


async def test_a_message_too_large_is_dropped_by_publish_and_raised_by_the_others(bus: Bus) -> None:
    large = LogLines(JobName("j"), Rank(0), Generation(1), WorkerId("w"), lines=("x" * MAX_BYTES,))
    bus.publish("t", large)
    assert bus.dropped[TOO_LARGE] == 1
    with pytest.raises(MessageTooLarge):
        await bus.publish_durable("t", large)
    with pytest.raises(TooLarge):
        await bus.request("t", large, timeout_s=1.0)


async def test_the_servers_own_limit_counts_too(nats_server: NatsServer) -> None:
    await nats_server.stop()
    small = NatsServer(nats_server.folder, port=nats_server.port, max_payload=2000)
    async with small:
        bus = await Bus.connect(BusSettings(url=small.url))
        bus.publish("t", an_event("x" * 3000))
        assert bus.dropped[TOO_LARGE] == 1
        await bus.close()


async def test_after_unsubscribing_nothing_is_heard(connect: Connect) -> None:
    sender, receiver = await connect("sender"), await connect("receiver")
    first, second = Heard(), Heard()
    subscription = await receiver.subscribe("t", first)
    await receiver.subscribe("t", second)
    await subscription.unsubscribe()
    sender.publish("t", an_event("x"))
    await eventually(lambda: second.texts)
    assert first.texts == []


async def test_ending_a_subscription_twice_is_ending_it_once(bus: Bus) -> None:
    async def answer(_subject: str, _received: Received) -> Answer:
        return Answer(ok=True)

    served = await bus.serve("q", answer)
    await served.unsubscribe()
    await served.unsubscribe()
    with pytest.raises(NoAnswer):
        await bus.request("q", an_event("x"), timeout_s=10.0)
    await bus.drain(timeout_s=10.0)
    await served.unsubscribe()
    assert not bus.connected


async def test_a_handler_that_raises_ends_the_bus(connect: Connect) -> None:
    bus = await connect()

    def broken(_subject: str, _received: Received) -> None:
        raise LookupError("a defect")

    await bus.subscribe("t", broken)
    bus.publish("t", an_event("x"))
    async with asyncio.timeout(20):
        with pytest.raises(LookupError, match="a defect"):
            await bus.run()
    with pytest.raises(BusClosed):
        bus.publish("t", an_event("y"))


async def test_a_server_that_raises_ends_the_bus(connect: Connect) -> None:
    asking, answering = await connect("asking"), await connect("answering")

    async def broken(_subject: str, _received: Received) -> Answer:
        raise LookupError("a defect")

    await answering.serve("q", broken)
    asking.publish("q", an_event("x"))
    async with asyncio.timeout(20):
        with pytest.raises(LookupError, match="a defect"):
            await answering.run()


async def test_draining_sends_what_waits_and_answers_what_was_asked(connect: Connect) -> None:
    leaving, staying = await connect("leaving"), await connect("staying")
    heard = Heard()
    asked = asyncio.Event()
    await staying.subscribe("t", heard)

    async def slow(_subject: str, _received: Received) -> Answer:
        asked.set()
        await asyncio.sleep(0.2)
        return Answer(ok=True, why="in time")

    await leaving.serve("q", slow)
    asking = asyncio.create_task(staying.request("q", an_event("quick"), timeout_s=20.0))
    await asked.wait()
    for number in range(100):
        leaving.publish("t", an_event(str(number)))
    await leaving.drain(timeout_s=20.0)
    assert (await asking).message == Answer(ok=True, why="in time")
    await eventually(lambda: len(heard.texts) == 100)
    with pytest.raises(BusClosed):
        leaving.publish("t", an_event("late"))
    async with asyncio.timeout(20):
        await leaving.run()


async def test_draining_is_bounded_when_the_server_is_gone(nats_server: NatsServer, connect: Connect) -> None:
    bus = await connect()
    await nats_server.kill()
    bus.publish("t", an_event("x"))
    async with asyncio.timeout(20):
        await bus.drain(timeout_s=0.1)
    assert not bus.connected


async def test_the_bus_leaves_no_task_behind(nats_server: NatsServer) -> None:
    before = asyncio.all_tasks()
    bus = await Bus.connect(BusSettings(url=nats_server.url))
    await bus.subscribe("t", Heard())
    bucket = await bus.bucket("b")
    await bucket.watch(">", lambda key, entry: None)
    await bus.drain(timeout_s=10.0)
    await eventually(lambda: asyncio.all_tasks() == before)


async def test_no_server_is_a_sentence_with_the_address_and_what_to_try(nats_server: NatsServer) -> None:
    await nats_server.stop()
    with pytest.raises(BusAway) as raised:
        await Bus.connect(BusSettings(url=nats_server.url, connect_timeout_s=0.3))
    assert (raised.value.url, raised.value.why) == (nats_server.url, "connection refused")
    assert nats_server.url in raised.value.message and raised.value.why in raised.value.message
    assert "TRADEWIND_NATS_URL" in raised.value.hint


async def test_a_server_that_starts_a_little_later_is_waited_for(nats_server: NatsServer) -> None:
    await nats_server.stop()
    connecting = asyncio.create_task(Bus.connect(BusSettings(url=nats_server.url, connect_timeout_s=30.0)))
    await asyncio.sleep(0.2)
    await nats_server.start()
    bus = await connecting
    assert bus.connected
    await bus.close()


async def test_the_one_that_is_cancelled_while_it_connects_is_though_the_client_forgets_it(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Client.connect
    connected = asyncio.Event()

    async def forgetful(client: Client, **options: Any) -> None:
        await connect(client, **options)
        connected.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    monkeypatch.setattr(Client, "connect", forgetful)
    connecting = asyncio.create_task(Bus.connect(BusSettings(url=nats_server.url, connect_timeout_s=20.0)))
    await connected.wait()
    connecting.cancel()
    await asyncio.wait({connecting})
    assert connecting.cancelled()


@pytest.mark.parametrize(
    "url", ["nats://", "nats://host:port", "http//x y", "http://127.0.0.1:4222", "nats://a b:1", ""]
)
async def test_an_address_that_is_none_is_a_sentence(url: str) -> None:
    with pytest.raises(UserError):
        await Bus.connect(BusSettings(url=url, connect_timeout_s=0.3))


async def test_a_missing_credentials_file_is_a_sentence(nats_server: NatsServer) -> None:
    with pytest.raises(UserError, match=r"/nowhere/user\.creds"):
        await Bus.connect(BusSettings(url=nats_server.url, credentials="/nowhere/user.creds"))
