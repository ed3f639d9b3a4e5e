"""What is sent arrives as it was; what cannot be read is rejected with its reason and never raises."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messages import codec
from messages.codec import MAX_BYTES, MessageTooLarge, Received, Rejected, RejectedReason
from messages.envelope import KINDS, VERSION, Message
from messages.events import Event
from messages.ids import ClusterName, Epoch, Generation, JobName, Rank, WorkerId
from messages.workers import WorkerPhase, WorkerReady, WorkerStatus
from messages.worlds import Halt, LogLines
from tests.messages.strategies import values_of

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def an_event(text: str = "a worker joined") -> Event:
    return Event(scope="fleet", kind="joined", text=text)


def a_payload(**changes: object) -> bytes:
    envelope = msgspec.json.decode(codec.encode(codec.wrap(an_event(), sender="test", at=AT, message_id="m1")))
    return msgspec.json.encode({**envelope, **changes})


def rejected(payload: bytes) -> RejectedReason:
    answer = codec.decode(payload)
    assert isinstance(answer, Rejected)
    assert answer.detail
    return answer.reason


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_of_every_kind_arrives_as_it_was_sent(kind: str) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(values_of(KINDS[kind]))
    def check(message: Message) -> None:
        received = codec.decode(codec.encode(codec.wrap(message, sender="test")))
        assert isinstance(received, Received)
        assert received.message == message
        assert received.envelope.kind == kind

    check()


def test_every_struct_has_exactly_one_kind() -> None:
    assert len(set(KINDS.values())) == len(KINDS)
    assert codec.kind_of(an_event()) == "event"


def test_the_envelope_carries_what_the_sender_said_of_it() -> None:
    envelope = codec.wrap(
        an_event(),
        sender="master/a",
        epoch=Epoch(7),
        generation=Generation(3),
        caused_by="m0",
        cause="event from a",
        at=AT,
        message_id="m1",
    )
    received = codec.decode(codec.encode(envelope))
    assert isinstance(received, Received)
    read = received.envelope
    assert (read.v, read.sender, read.epoch, read.generation) == (VERSION, "master/a", 7, 3)
    assert (read.caused_by, read.cause, read.at, read.id) == ("m0", "event from a", AT, "m1")


def test_the_generation_is_taken_from_the_message_or_its_status() -> None:
    status = WorkerStatus(
        worker=WorkerId("w1-0001"),
        cluster=ClusterName("local"),
        job=JobName("j"),
        seq=1,
        phase=WorkerPhase.READY,
        generation=Generation(5),
    )
    halt = Halt(job=JobName("j"), generation=Generation(4), why="", stop_grace_s=1.0)
    assert codec.wrap(WorkerReady(status), sender="w").generation == 5
    assert codec.wrap(halt, sender="m").generation == 4
    assert codec.wrap(an_event(), sender="m").generation is None


def test_ids_of_two_messages_differ() -> None:
    assert codec.wrap(an_event(), sender="a").id != codec.wrap(an_event(), sender="a").id


def test_a_message_that_no_receiver_would_take_is_not_encoded() -> None:
    lines = LogLines(JobName("j"), Rank(0), Generation(1), WorkerId("w"), lines=("x" * MAX_BYTES,))
    with pytest.raises(MessageTooLarge, match=r"job\.log"):
        codec.encode(codec.wrap(lines, sender="w"))


def test_an_oversized_payload_is_rejected_before_it_is_read() -> None:
    assert rejected(b"{" * (MAX_BYTES + 1)) is RejectedReason.OVERSIZED


def test_a_newer_version_is_rejected_even_when_nothing_else_of_it_is_known() -> None:
    assert rejected(a_payload(v=VERSION + 1)) is RejectedReason.NEWER_VERSION
    assert rejected(b'{"v": 2, "something": "else"}') is RejectedReason.NEWER_VERSION


def test_an_unknown_kind_is_rejected() -> None:
    assert rejected(a_payload(kind="job.teleported")) is RejectedReason.UNKNOWN_KIND


def test_unknown_fields_are_ignored() -> None:
    received = codec.decode(a_payload(extra=1, body={"scope": "fleet", "kind": "k", "text": "t", "later": [1]}))
    assert isinstance(received, Received)
    assert received.message == Event(scope="fleet", kind="k", text="t")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"v": "1"}',
        b'{"v": -1}',
        b"[" * 100_000,
        b'{"v":1,"a":' + b"[" * 100_000,
        a_payload(body=None),
        a_payload(body="text"),
        a_payload(body={"scope": 1}),
        a_payload(body={}),
        a_payload(at="yesterday"),
        a_payload(id=5),
        a_payload().replace(b"a worker joined", b"\xff"),
        a_payload().replace(b"a worker joined", b"\\ud800"),
    ],
)
def test_a_malformed_payload_is_rejected(payload: bytes) -> None:
    assert rejected(payload) is RejectedReason.MALFORMED


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_make_decoding_raise(payload: bytes) -> None:
    assert isinstance(codec.decode(payload), Received | Rejected)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_change_of_a_few_bytes_makes_decoding_raise(data: st.DataObject) -> None:
    payload = bytearray(a_payload())
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    assert isinstance(codec.decode(bytes(payload)), Received | Rejected)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(sorted(KINDS)),
)
def test_no_body_makes_decoding_raise(body: object, kind: str) -> None:
    answer = codec.decode(a_payload(kind=kind, body=body))
    assert isinstance(answer, Received | Rejected)
