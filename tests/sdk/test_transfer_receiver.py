"""Failures of a transfer at the receiver: senders that are lost, foreign connections, other worlds."""

import json
import subprocess
import sys
import zlib

import pytest

from tests.conftest import eventually_blocking
from tests.sdk.states import differences
from tests.sdk.transfers import LONG_S, Stage, a_shard, introduction, loaded, received, was_closed
from tradewind.sdk.transfer.receiver import DAMAGED, Admission, too_few_senders
from tradewind.sdk.transfer.wire import ENDED

TIMED_OUT = "timed out"
"""Python's text for a socket's timeout."""


def test_a_sender_lost_in_the_middle_fails_the_attempt_and_a_newer_one_succeeds(stage: Stage) -> None:
    receiver, survivor = stage.receiver(), stage.survivor()
    lost = stage.foreign(receiver, introduction(receiver), a_shard(shard=1), b"half of it")
    lost.close()

    assert receiver.wait(LONG_S) is None
    assert receiver.failed == f"shard 1 of 2: {ENDED}"

    survivor.stream(receiver, step=3)
    assert received(receiver).step == 3
    assert receiver.failed == ""


SENDER = """
import json, os, socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
line = {"generation": 5, "step": 2, "shard": 1, "of": 2, "nbytes": 1 << 30, "header_bytes": 0}
sock.sendall(json.dumps({"token": sys.argv[2]}).encode() + b"\\n" + json.dumps(line).encode() + b"\\n")
print("sending", flush=True)
while True:
    sock.sendall(bytes(1 << 20))
    sys.stdin.readline()
"""


def test_a_sender_that_is_killed_fails_the_attempt(stage: Stage) -> None:
    receiver = stage.receiver()
    command = [sys.executable, "-c", SENDER, str(receiver.port), receiver.token]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline() == b"sending\n"
        eventually_blocking(lambda: len(receiver._connections) == 1, what="it is connected")
        sender.kill()

    eventually_blocking(lambda: receiver.failed, what="the attempt failed")
    assert receiver.failed.startswith("shard 1 of 2: ")
    assert receiver.poll() is None


def test_a_silent_sender_fails_the_attempt(stage: Stage) -> None:
    receiver = stage.receiver(silence_s=0.05)
    stage.foreign(receiver, introduction(receiver), a_shard(), b"some")

    assert receiver.wait(LONG_S) is None
    assert receiver.failed == f"shard 0 of 2: {TIMED_OUT}"


def test_bytes_that_were_damaged_fail_the_attempt(stage: Stage) -> None:
    receiver = stage.receiver()
    stage.foreign(receiver, introduction(receiver), a_shard(of=1), bytes(1000), {"checksum": 1})

    assert receiver.wait(LONG_S) is None
    assert receiver.failed == f"shard 0 of 1: {DAMAGED}"


@pytest.mark.parametrize(
    "lines",
    [
        [{"token": "guessed"}, a_shard()],
        [{"token": None}],
        [a_shard()],
        [b"GET / HTTP/1.1\r\n\r\n"],
        [b"\x16\x03\x01\x00\xa5" * 2000],
        [b"[1, 2]\n"],
        [b"9" * 4000 + b"\n"],
        [b"[" * 4000 + b"\n"],
    ],
)
def test_strangers_are_closed_and_disturb_nothing(stage: Stage, lines: list[object]) -> None:
    receiver, survivor = stage.receiver(), stage.survivor()

    assert was_closed(stage.foreign(receiver, *lines))

    survivor.stream(receiver)
    assert differences(loaded(received(receiver)).state, survivor.rank.state) == []
    assert receiver.failed == ""


@pytest.mark.parametrize(
    "line",
    [
        a_shard(generation=4),
        a_shard(shard=2, of=2),
        a_shard(nbytes=1 << 50),
        a_shard(nbytes=-1),
        a_shard(nbytes=1 << 70),
        a_shard() | {"header_bytes": 1 << 40},
        a_shard() | {"step": "now"},
        a_shard() | {"step": True},
        {},
    ],
)
def test_members_that_talk_of_something_else_are_closed_and_disturb_nothing(stage: Stage, line: object) -> None:
    receiver, survivor = stage.receiver(), stage.survivor()

    assert was_closed(stage.foreign(receiver, introduction(receiver), line))

    survivor.stream(receiver)
    assert differences(loaded(received(receiver)).state, survivor.rank.state) == []


@pytest.mark.parametrize(
    "late", [a_shard(step=1), a_shard(shard=0), a_shard(shard=1, of=3), a_shard(shard=1, nbytes=9)]
)
def test_what_does_not_belong_to_the_attempt_is_closed_while_it_continues(stage: Stage, late: object) -> None:
    receiver = stage.receiver()
    first = stage.foreign(receiver, introduction(receiver), a_shard(shard=0), bytes(10))
    eventually_blocking(lambda: receiver._attempt is not None, what="the attempt began")

    assert was_closed(stage.foreign(receiver, introduction(receiver), late))

    checksum = {"checksum": zlib.crc32(bytes(500))}
    first.sendall(bytes(490) + json.dumps(checksum).encode() + b"\n")
    stage.foreign(receiver, introduction(receiver), a_shard(shard=1), bytes(500), checksum)
    assert received(receiver).data == bytes(1000)


def test_memory_is_ready_for_a_state_that_was_announced(stage: Stage) -> None:
    receiver = stage.receiver()
    sender = stage.foreign(receiver, introduction(receiver) | {"nbytes": 1000})
    eventually_blocking(lambda: receiver._memory_ahead is not None, what="memory is ready")
    ready = receiver._memory_ahead

    sender.sendall(json.dumps(a_shard(of=1)).encode() + b"\n" + b"1" * 1000)
    sender.sendall(json.dumps({"checksum": zlib.crc32(b"1" * 1000)}).encode() + b"\n")

    assert received(receiver).data is ready
    assert ready == b"1" * 1000
    assert receiver._memory_ahead is None


@pytest.mark.parametrize("nbytes", [0, 999, 1 << 50, None])
def test_what_was_announced_may_be_wrong(stage: Stage, nbytes: int | None) -> None:
    receiver, survivor = stage.receiver(), stage.survivor()
    announcing = stage.foreign(receiver, introduction(receiver) | {"nbytes": nbytes})
    if nbytes is None:
        assert was_closed(announcing)
    elif nbytes == 999:
        eventually_blocking(lambda: receiver._memory_ahead is not None, what="memory is ready")

    survivor.stream(receiver)
    assert differences(loaded(received(receiver)).state, survivor.rank.state) == []


def test_a_restart_drops_what_came_for_the_world_before(stage: Stage) -> None:
    receiver, survivor = stage.receiver(), stage.survivor()
    old = stage.foreign(receiver, introduction(receiver), a_shard(), b"half of it")
    waiting = stage.foreign(receiver, introduction(receiver))
    eventually_blocking(lambda: 5 in receiver._connections.values(), what="the old attempt began")

    receiver.restart(6)

    assert was_closed(old)
    assert receiver.failed == ""
    survivor.stream(receiver, generation=6, step=9)
    assert received(receiver).step == 9
    eventually_blocking(
        lambda: len(receiver._connections) == 2, what="the one that waits for its switch is still welcome"
    )
    waiting.close()


def test_a_state_that_comes_before_the_joining_worker_knows_its_world_waits_for_it(stage: Stage) -> None:
    receiver, survivor = stage.receiver(generation=5), stage.survivor()
    survivor.stream(receiver, generation=6)
    eventually_blocking(lambda: receiver._connections, what="it is connected")
    assert receiver.wait(0.05) is None

    receiver.restart(6)

    assert received(receiver).generation == 6


def test_a_state_for_a_world_that_never_comes_is_dropped(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.sdk.transfer.receiver.EARLY_S", 0.05)
    receiver = stage.receiver(generation=5)

    assert was_closed(stage.foreign(receiver, introduction(receiver), a_shard(generation=6)))
    assert receiver.poll() is None


def test_a_state_that_was_not_fetched_is_dropped_by_a_restart(stage: Stage) -> None:
    receiver, survivor = stage.receiver(), stage.survivor()
    assert survivor.stream(receiver).sent.wait(LONG_S)
    eventually_blocking(lambda: receiver._attempt is not None and receiver._attempt.complete, what="it came")

    receiver.restart(6)

    assert receiver.poll() is None
    survivor.stream(receiver, generation=6)
    assert received(receiver).generation == 6


def test_a_shard_that_never_begins_fails_the_attempt_once_all_should_be_sending(stage: Stage) -> None:
    receiver = stage.receiver(silence_s=0.05)
    assert receiver.failed == ""

    receiver.expect()

    eventually_blocking(lambda: receiver.failed, what="it is given up")
    assert receiver.failed == too_few_senders(0, None, 0.05)

    receiver.restart(6)
    assert receiver.failed == ""


def test_one_of_two_shards_that_begins_is_not_enough(stage: Stage) -> None:
    receiver, bytes_of_one = stage.receiver(), bytes(500)
    checksum = {"checksum": zlib.crc32(bytes_of_one)}
    stage.foreign(receiver, introduction(receiver), a_shard(shard=1), bytes_of_one, checksum)
    eventually_blocking(lambda: receiver._attempt is not None and receiver._attempt.complete, what="one came")

    receiver._silence_s = 0.0
    receiver.expect()

    assert receiver.failed == too_few_senders(1, 2, 0.0)


def test_shards_that_have_begun_may_take_their_time(stage: Stage) -> None:
    receiver = stage.receiver()
    for shard in (0, 1):
        stage.foreign(receiver, introduction(receiver), a_shard(shard=shard), bytes(10))
    eventually_blocking(lambda: receiver._attempt is not None and receiver._attempt.all_begun, what="both began")

    receiver._silence_s = 0.0
    receiver.expect()

    assert receiver.failed == ""


def test_an_answer_that_does_not_come_is_lost(stage: Stage) -> None:
    receiver = stage.receiver()
    stage.foreign(receiver, introduction(receiver), a_shard(of=1), bytes(1000), {"checksum": zlib.crc32(bytes(1000))})
    assert received(receiver).step == 2
    receiver.ask_admission(2, 7)
    assert receiver.wait_admission(0.0) is Admission.AWAITED

    receiver._silence_s = 0.0

    assert receiver.admission is Admission.LOST
