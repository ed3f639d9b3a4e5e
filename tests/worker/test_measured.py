"""What trainers say of the time of their steps: whatever it is, the steps count and the master can read it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.worker.progress import ProgressBook
from agents.worker.trainer_socket import Trainers
from messages import codec
from messages.ids import Generation, Rank
from messages.measured import StepsMeasured
from messages.worlds import Progress, RankProgress
from tests.worker.builders import JOB, OWN
from tradewind.protocol import trainer as wire

GOOD = {
    "steps": 4,
    "samples": 32,
    "seconds": 2.0,
    "computed_s": 1.0,
    "waited_s": 0.5,
    "gradient_bytes": 4096,
    "global_batch": 16,
}
NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)
ODD = st.one_of(ANYTHING, st.dictionaries(st.sampled_from(sorted(GOOD)), st.one_of(NUMBERS, ANYTHING)))


def heard(measured: object) -> tuple[wire.Progress, Trainers]:
    said = wire.decode_message(
        json.dumps(
            {"type": "progress", "generation": 1, "rank": 0, "reports": [{"step": 3}], "measured": measured}
        ).encode()
    )
    assert isinstance(said, wire.Progress)
    return said, Trainers(lambda birth, message: None)


def on_the_bus(*sent: StepsMeasured | None) -> RankProgress:
    """Returns the message as the master decodes it."""
    book = ProgressBook(JOB, OWN)
    for each in sent:
        said, _ = heard(None)
        book.add(Generation(1), Rank(0), said.reports, each)
    [progress] = book.take()
    read = codec.decode(codec.encode(codec.wrap(progress, sender="worker")))
    assert isinstance(read, codec.Received), read
    assert isinstance(read.message, Progress)
    [rank] = read.message.ranks
    return rank


def test_what_makes_sense_is_passed_on() -> None:
    said, trainers = heard({**GOOD, "from_a_newer_sdk": [1]})
    measured = trainers.measured(said)
    assert measured == StepsMeasured(4, 32, 2.0, 1.0, 0.5, 4096, 16)
    assert on_the_bus(measured).measured == measured
    assert not trainers.dropped


def test_an_older_sdk_measures_nothing() -> None:
    said = wire.decode_message(b'{"type": "progress", "generation": 1, "rank": 0, "reports": [{"step": 3}]}')
    assert isinstance(said, wire.Progress)
    trainers = Trainers(lambda birth, message: None)
    assert (trainers.measured(said), on_the_bus(None).measured) == (None, None)
    assert not trainers.dropped


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": -1},
        {"steps": 1.5},
        {"seconds": 1e300},
        {"computed_s": "1"},
        {"waited_s": -0.1},
        {"gradient_bytes": 2**60},
        {"samples": None},
    ],
)
def test_what_cannot_be_is_counted_and_its_steps_are_told_all_the_same(bad: dict[str, Any]) -> None:
    said, trainers = heard({**GOOD, **bad})
    assert trainers.measured(said) is None
    assert trainers.dropped == {"measurement_dropped": 1}
    assert [report.step for report in said.reports] == [3]


@given(st.lists(ODD, min_size=1, max_size=4))
def test_whatever_is_said_the_master_can_read_what_is_passed_on(odd: list[object]) -> None:
    sent = []
    for each in odd:
        said, trainers = heard(each)
        measured = trainers.measured(said)
        assert (measured is None) or not trainers.dropped
        sent.append(measured)
    rank = on_the_bus(*sent)
    assert (rank.first_step, rank.last_step) == (3, 3)
    assert (rank.measured is None) == all(each is None for each in sent)
