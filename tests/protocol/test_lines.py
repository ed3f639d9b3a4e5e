"""Lines of JSON and the dataclasses that they carry."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.protocol import host, trainer
from tradewind.protocol.lines import AtMost, Count, Lines, Unreadable, Within
from tradewind.protocol.steps import StepReport


@dataclass(frozen=True, slots=True)
class Part:
    name: str


@dataclass(frozen=True, slots=True)
class Whole:
    count: Count
    share: Annotated[float, Within(0, 1)] = 0.5
    kind: Literal["a", "b"] = "a"
    pairs: Annotated[tuple[tuple[int, int], ...], AtMost(2)] = ()
    parts: tuple[Part, ...] = ()
    names: Mapping[str, str] | None = None
    is_open: bool = False


LINES: Lines[Whole] = Lines({"whole": Whole})


def read(**content: object) -> Whole:
    return LINES.decode(json.dumps({"type": "whole", "count": 1, **content}).encode())


def test_what_is_encoded_is_read_again() -> None:
    whole = Whole(3, 1.0, "b", ((1, 2),), (Part("über"),), {"A": "1"}, is_open=True)
    assert LINES.decode(LINES.encode(whole)) == whole


def test_absent_fields_have_their_defaults_and_unknown_ones_are_ignored() -> None:
    assert read(of_a_newer_version=[1]) == Whole(1)


def test_a_whole_number_is_a_number() -> None:
    assert read(share=1).share == 1.0


@pytest.mark.parametrize(
    "content",
    [
        {"count": None},
        {"count": -1},
        {"count": 2**53 + 1},
        {"count": True},
        {"count": 1.0},
        {"share": 1.5},
        {"share": 10**400},
        {"kind": "c"},
        {"kind": ["a"]},
        {"pairs": [[1, 2], [3]]},
        {"pairs": [[1, 2]] * 3},
        {"pairs": "12"},
        {"parts": [{}]},
        {"parts": ["x"]},
        {"parts": [{"name": "\ud800"}]},
        {"names": {"A": 1}},
        {"names": {"\ud800": "1"}},
        {"is_open": 1},
    ],
)
def test_what_does_not_fit_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(Unreadable):
        read(**content)


@pytest.mark.parametrize("line", [b'{"type":"whole"}', b'{"type":"whole","count":1,"share":NaN}', b"[" * 100_000, b""])
def test_a_line_that_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(Unreadable):
        LINES.decode(line)


def test_half_of_a_surrogate_pair_leaves_the_line_readable() -> None:
    assert LINES.decode(LINES.encode(Whole(1, parts=(Part("a\udcffb"),)))).parts == (Part("a?b"),)


NUMBERS = st.integers(0, 2**53)
TEXTS = st.text(st.characters(codec="utf-8"))


@given(
    st.builds(trainer.Status, done=NUMBERS, waits=TEXTS, waiting=st.none() | NUMBERS, step_s=st.floats(0, 1e9))
    | st.builds(
        trainer.Progress,
        NUMBERS,
        st.integers(0, 1_000_000),
        st.lists(st.builds(StepReport, NUMBERS, st.none() | st.floats(allow_nan=False, allow_infinity=False))).map(
            tuple
        ),
    )
)
def test_every_message_of_a_trainer_reaches_its_agent(message: trainer.TrainerMessage) -> None:
    assert trainer.decode_message(trainer.encode_message(message)) == message


@given(st.builds(host.Exited, NUMBERS, st.integers(0, 1_000_000), tail=st.lists(TEXTS).map(tuple), error=TEXTS))
def test_every_exit_reaches_the_agent(exited: host.Exited) -> None:
    assert host.decode_message(host.encode_message(exited)) == exited


def test_the_protocols_need_the_standard_library_only() -> None:
    program = (
        "import sys; import tradewind.protocol.host, tradewind.protocol.trainer; "
        "print({name.partition('.')[0] for name in sys.modules} & {'torch', 'numpy', 'msgspec', 'click'})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
