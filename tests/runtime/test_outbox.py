"""What waits to be sent: in order, bounded, and every drop is counted."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from messages.envelope import Message
from messages.events import Event
from messages.ids import ClusterName, Generation, JobName, WorkerId
from messages.workers import WorkerHeartbeat, WorkerPhase, WorkerStatus
from messages.worlds import Progress
from runtime.outbox import FULL, STALE, Outbox, Outgoing, outgoing

EVENT = Event(scope="fleet", kind="k", text="t")
PROGRESS = Progress(JobName("j"), WorkerId("w"), Generation(1), ranks=())
STATUS = WorkerStatus(WorkerId("w"), ClusterName("local"), JobName("j"), seq=1, phase=WorkerPhase.IDLE)
HEARTBEAT = WorkerHeartbeat(STATUS)


def an_item(message: Message, payload: bytes, subject: str = "s", at_s: float = 0.0) -> Outgoing:
    return outgoing(subject, message, payload, at_s)


def emptied(outbox: Outbox, now_s: float = 0.0) -> list[bytes]:
    found = []
    while (item := outbox.pop(now_s)) is not None:
        found.append(item.payload)
    return found


def test_it_gives_back_in_order() -> None:
    outbox = Outbox(Counter())
    for number in range(5):
        outbox.put(an_item(EVENT, b"%d" % number))
    assert emptied(outbox) == [b"0", b"1", b"2", b"3", b"4"]
    assert outbox.pop(0.0) is None


def test_a_heartbeat_replaces_the_one_before_on_the_same_subject() -> None:
    dropped: Counter[str] = Counter()
    outbox = Outbox(dropped)
    outbox.put(an_item(HEARTBEAT, b"old", "a"))
    outbox.put(an_item(EVENT, b"event", "a"))
    outbox.put(an_item(HEARTBEAT, b"other", "b"))
    outbox.put(an_item(HEARTBEAT, b"new", "a"))
    assert emptied(outbox) == [b"event", b"other", b"new"]
    assert not dropped


def test_when_full_the_oldest_that_can_be_missed_goes_first() -> None:
    dropped: Counter[str] = Counter()
    outbox = Outbox(dropped, max_messages=3)
    outbox.put(an_item(EVENT, b"fact"))
    outbox.put(an_item(PROGRESS, b"p1"))
    outbox.put(an_item(PROGRESS, b"p2"))
    outbox.put(an_item(EVENT, b"fact 2"))
    assert emptied(outbox) == [b"fact", b"p2", b"fact 2"]
    assert dropped == {FULL: 1}


def test_when_only_facts_are_left_the_oldest_of_them_goes() -> None:
    dropped: Counter[str] = Counter()
    outbox = Outbox(dropped, max_messages=2)
    for number in range(4):
        outbox.put(an_item(EVENT, b"%d" % number))
    assert emptied(outbox) == [b"2", b"3"]
    assert dropped == {FULL: 2}


def test_bytes_are_bounded_too() -> None:
    dropped: Counter[str] = Counter()
    outbox = Outbox(dropped, max_bytes=100)
    for number in range(10):
        outbox.put(an_item(EVENT, b"%d" % number * 40))
    assert len(outbox) == 2
    assert dropped == {FULL: 8}


def test_what_has_waited_too_long_is_dropped_if_it_can_be_missed() -> None:
    dropped: Counter[str] = Counter()
    outbox = Outbox(dropped, stale_s=60.0)
    outbox.put(an_item(PROGRESS, b"old", at_s=0.0))
    outbox.put(an_item(EVENT, b"fact", at_s=0.0))
    outbox.put(an_item(PROGRESS, b"new", at_s=50.0))
    assert emptied(outbox, now_s=100.0) == [b"fact", b"new"]
    assert dropped == {STALE: 1}


@given(st.lists(st.tuples(st.sampled_from([EVENT, PROGRESS]), st.binary(max_size=8)), max_size=60))
def test_nothing_is_lost_without_being_counted_and_order_is_kept(puts: list[tuple[Message, bytes]]) -> None:
    dropped: Counter[str] = Counter()
    outbox = Outbox(dropped, max_messages=10, max_bytes=50)
    items = [an_item(message, payload) for message, payload in puts]
    for item in items:
        outbox.put(item)
    kept = []
    while (item_or_none := outbox.pop(0.0)) is not None:
        kept.append(item_or_none)
    positions = [next(i for i, item in enumerate(items) if item is each) for each in kept]
    assert positions == sorted(positions)
    assert len(kept) + dropped[FULL] == len(puts)
    assert len(kept) <= 10
    assert sum(len(item.payload) for item in kept) <= 50
