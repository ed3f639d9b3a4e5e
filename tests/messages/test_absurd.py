"""Numbers that no honest sender sends are malformed messages: none of them gets as far as a handler."""

import json
from typing import Any

import msgspec
import pytest

from messages.codec import Received, Rejected, RejectedReason, decode, encode, wrap
from messages.envelope import Message
from messages.ids import ClusterName, Generation, JobName, Rank, WorkerId
from messages.workers import WorkerPhase, WorkerReady, WorkerStatus
from messages.worlds import Progress, RankProgress

STATUS = WorkerStatus(WorkerId("w-1"), ClusterName("local"), JobName("demo"), 1, WorkerPhase.READY)
PROGRESS = Progress(JobName("demo"), WorkerId("w-1"), Generation(1), (RankProgress(Rank(0), 1, 2, samples=3),))
READY = WorkerReady(STATUS)


def with_value(message: Message, path: str, value: str) -> bytes:
    """The message as it travels, with one value replaced by what JSON text is given."""
    whole: Any = json.loads(encode(wrap(message, sender="test")))
    *steps, last = path.split(".")
    place = whole
    for step in steps:
        place = place[int(step)] if isinstance(place, list) else place[step]
    place[last] = "REPLACED"
    return msgspec.json.encode(whole).replace(b'"REPLACED"', value.encode())


@pytest.mark.parametrize(
    ("message", "path", "value"),
    [
        (PROGRESS, "at", '"0001-01-01T00:00:00"'),
        (PROGRESS, "epoch", "9" * 40),
        (PROGRESS, "body.generation", "-1"),
        (PROGRESS, "body.ranks.0.samples", "9" * 400),
        (PROGRESS, "body.ranks.0.last_at", "1e300"),
        (PROGRESS, "body.ranks.0.rank", "1e9"),
        (READY, "body.status.slots", "1000000000"),
        (READY, "body.status.seq", "9" * 30),
        (READY, "body.status.generation", "9" * 400),
        (READY, "body.status.notice_s", "-5"),
    ],
)
def test_an_absurd_number_is_malformed(message: Message, path: str, value: str) -> None:
    answer = decode(with_value(message, path, value))
    assert isinstance(answer, Rejected)
    assert answer.reason is RejectedReason.MALFORMED


def test_an_honest_message_still_passes() -> None:
    assert isinstance(decode(encode(wrap(READY, sender="test"))), Received)
