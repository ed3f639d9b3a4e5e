import json
from typing import Any

import pytest

from tradewind.protocol import host as protocol
from tradewind.protocol.host import Abort, Exit, Fork, Stop, TrainerSpec
from tradewind.protocol.lines import Unreadable


def a_trainer(**changes: object) -> dict[str, Any]:
    return {"rank": 0, "env": {"A": "1"}, "script": "train.py", "argv": ["--lr", "1"], "cwd": "/", **changes}


def a_fork(*trainers: dict[str, Any]) -> dict[str, Any]:
    return {"type": "fork", "generation": 3, "trainers": list(trainers)}


def parsed(message: object) -> object:
    return protocol.decode_command(json.dumps(message).encode())


def test_every_command_is_understood() -> None:
    spec = TrainerSpec(0, {"A": "1"}, ("--lr", "1"), "/", script="train.py")
    assert parsed(a_fork(a_trainer())) == Fork(3, (spec,))
    assert parsed({"type": "stop", "generation": 3, "grace_s": 1.5}) == Stop(3, 1.5)
    assert parsed({"type": "abort", "generation": 3, "rank": 1, "why": "stalled"}) == Abort(3, 1, "stalled")
    assert parsed({"type": "exit"}) == Exit()


def test_unknown_fields_are_ignored() -> None:
    assert parsed({"type": "exit", "why": "unknown"}) == Exit()


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        "exit",
        {},
        {"type": "dance"},
        {"type": ["exit"]},
        {"type": "stop", "generation": 3},
        {"type": "stop", "generation": True, "grace_s": 1},
        {"type": "stop", "generation": -1, "grace_s": 1},
        {"type": "stop", "generation": 1, "grace_s": -1},
        {"type": "stop", "generation": 1, "grace_s": float("nan")},
        {"type": "stop", "generation": 1, "grace_s": float("inf")},
        {"type": "stop", "generation": 1, "grace_s": "5"},
        {"type": "stop", "generation": 1, "grace_s": 10**400},
        {"type": "abort", "generation": 1, "rank": 0, "why": 9},
        {"type": "abort", "generation": 1, "rank": 0, "why": ""},
        {"type": "fork", "generation": 1},
        {"type": "fork", "generation": 1, "trainers": ["train.py"]},
        a_fork(a_trainer(), a_trainer()),
        a_fork(a_trainer(rank="0")),
        a_fork(a_trainer(script=None)),
        a_fork(a_trainer(module="train")),
        a_fork(a_trainer(script="")),
        a_fork(a_trainer(script="a\0b")),
        a_fork(a_trainer(argv="--lr")),
        a_fork(a_trainer(argv=[1])),
        a_fork(a_trainer(argv=["a\0b"])),
        a_fork(a_trainer(env={"A": 1})),
        a_fork(a_trainer(env={"A=B": "1"})),
        a_fork(a_trainer(env={"": "1"})),
        a_fork(a_trainer(env={"A": "a\0b"})),
        a_fork(a_trainer(env={"A": "\ud800"})),
        a_fork(a_trainer(cwd=None)),
    ],
)
def test_a_message_that_makes_no_sense_is_refused(message: object) -> None:
    with pytest.raises(Unreadable, match=r"\w"):
        parsed(message)


@pytest.mark.parametrize("line", [b"\xff\xfe", b"{", b"[" * 100_000, b'{"type": "exit"}' + b" " * (16 << 20)])
def test_a_line_that_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(Unreadable):
        protocol.decode_command(line)


def test_a_message_is_one_line_of_utf8() -> None:
    line = protocol.encode_message(protocol.Output(1, 0, "stdout", ("übergröße", "a\tb\u2028c")))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line)["lines"] == ["übergröße", "a\tb\u2028c"]
