"""The state on its way to a joiner: real sockets, real tensors, and everything that can go wrong on the way."""

import json
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import torch
from torch import nn

from tests.sdk.states import Rank, differences, fused_adam
from tradewind.sdk.raw import Staging
from tradewind.sdk.stream import Admission, Receiver, Snapshot, Streamer, StreamJob

LONG_S = 30.0
LOOPBACK = "127.0.0.1"


def until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + LONG_S
    while not condition():
        if time.monotonic() > deadline_s:
            pytest.fail(f"not within {LONG_S} s: {what}")
        time.sleep(0.005)


def a_large_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(300, 500), nn.BatchNorm1d(500), nn.ReLU(), nn.Linear(500, 300))


class Survivor:
    def __init__(self, streamer: Streamer, fingerprints: dict[int, int]) -> None:
        self.rank = Rank(1, fused_adam, a_large_model(1)).steps(10, 11)
        self.streamer = streamer
        self.fingerprints = fingerprints

    def job(self, receiver: Receiver, shard: int = 0, of: int = 1, generation: int = 5, step: int = 2) -> StreamJob:
        header = self.rank.state.header() if shard == 0 else None
        address = (LOOPBACK, receiver.port)
        return StreamJob(address, receiver.token, generation, step, shard, of, self.rank.state, header)

    def stream(self, receiver: Receiver, shard: int = 0, of: int = 1, generation: int = 5, step: int = 2) -> StreamJob:
        job = self.job(receiver, shard, of, generation, step)
        self.streamer.offer(job)
        return job


class Stage:
    """Makes survivors and receivers, and closes them."""

    def __init__(self, closing: ExitStack) -> None:
        self._closing = closing

    def receiver(self, generation: int = 5, silence_s: float = LONG_S) -> Receiver:
        receiver = Receiver(LOOPBACK, silence_s=silence_s)
        self._closing.callback(receiver.close)
        receiver.restart(generation)
        return receiver

    def survivor(self) -> Survivor:
        fingerprints: dict[int, int] = {}
        streamer = Streamer(fingerprints)
        self._closing.callback(streamer.close)
        return Survivor(streamer, fingerprints)

    def foreign(self, receiver: Receiver, *lines: object) -> socket.socket:
        sock = socket.create_connection((LOOPBACK, receiver.port), timeout=LONG_S)
        self._closing.callback(sock.close)
        sock.sendall(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
        return sock


@pytest.fixture
def stage() -> Iterator[Stage]:
    with ExitStack() as closing:
        yield Stage(closing)


def received(receiver: Receiver) -> Snapshot:
    """Waits also through an attempt that failed, for the next."""
    snapshots: list[Snapshot] = []

    def comes() -> bool:
        snapshot = receiver.wait(0.01)
        snapshots.extend([snapshot] if snapshot is not None else [])
        return snapshot is not None

    until(comes, "the state came")
    return snapshots[0]


def loaded(snapshot: Snapshot) -> Rank:
    joiner = Rank(2, fused_adam, a_large_model(2))
    joiner.state.load(snapshot.header, snapshot.data)
    return joiner


def was_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("of", [1, 3])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_joiner_gets_the_state_from_all_survivors_and_replays_to_the_same_bits(
    stage: Stage, of: int, prepared: bool
) -> None:
    receiver = stage.receiver()
    survivors = [stage.survivor() for _ in range(of)]
    if prepared:
        for survivor in survivors:
            nbytes = survivor.rank.state.nbytes()
            survivor.streamer.prepare((LOOPBACK, receiver.port), receiver.token, nbytes // of + 1)
    jobs = [survivor.stream(receiver, shard, of) for shard, survivor in enumerate(survivors)]

    for job, survivor in zip(jobs, survivors, strict=True):
        assert job.copied.wait(LONG_S)
        survivor.rank.steps(12, 13)
    snapshot = received(receiver)
    joiner = loaded(snapshot).steps(12, 13)

    assert (snapshot.generation, snapshot.step) == (5, 2)
    assert differences(joiner.state, survivors[0].rank.state) == []
    assert [job.error for job in jobs] == [""] * of
    assert receiver.poll() is None, "it is given out once"


def test_two_joiners_at_once_get_the_same_state(stage: Stage) -> None:
    receivers = [stage.receiver(), stage.receiver()]
    survivors = [stage.survivor(), stage.survivor()]

    for receiver in receivers:
        for shard, survivor in enumerate(survivors):
            survivor.stream(receiver, shard, of=2)

    for receiver in receivers:
        assert differences(loaded(received(receiver)).state, survivors[0].rank.state) == []


def test_a_joiner_that_does_not_read_delays_neither_the_next_copy_nor_another_joiner(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    with socket.create_server((LOOPBACK, 0)) as deaf:
        stuck = survivor.job(receiver)
        stuck.address = (LOOPBACK, deaf.getsockname()[1])
        survivor.streamer.offer(stuck)
        survivor.stream(receiver)

        assert stuck.copied.wait(LONG_S)
        assert differences(loaded(received(receiver)).state, survivor.rank.state) == []


def test_a_joiner_that_is_level_is_admitted_by_its_fingerprint(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    survivor.stream(receiver)
    joiner = loaded(received(receiver)).steps(12)
    survivor.rank.step(12)
    assert (receiver.admission, receiver.admitted()) == (Admission.NOT_ASKED, None)

    receiver.ask_admission(3, joiner.state.fingerprint())
    assert receiver.wait_admission(LONG_S) is Admission.UNKNOWN
    assert receiver.admitted() is None

    survivor.fingerprints[3] = survivor.rank.state.fingerprint()
    receiver.ask_admission(3, joiner.state.fingerprint())
    assert receiver.wait_admission(LONG_S) is Admission.ADMITTED
    assert receiver.admitted() is True


def test_a_joiner_with_another_state_is_refused_and_may_ask_again(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    survivor.stream(receiver)
    joiner = loaded(received(receiver)).steps(99)
    survivor.fingerprints[3] = survivor.rank.steps(12).state.fingerprint()

    receiver.ask_admission(3, joiner.state.fingerprint())
    assert receiver.wait_admission(LONG_S) is Admission.REFUSED
    assert receiver.admitted() is False

    receiver.ask_admission(3, survivor.fingerprints[3])
    assert receiver.wait_admission(LONG_S) is Admission.ADMITTED


def test_a_survivor_that_is_gone_when_it_is_asked_is_noticed(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    survivor.stream(receiver)
    joiner = loaded(received(receiver))
    survivor.streamer.close()

    receiver.ask_admission(2, joiner.state.fingerprint())

    assert receiver.wait_admission(LONG_S) is Admission.LOST
    assert receiver.admitted() is None


def introduction(receiver: Receiver) -> dict[str, str]:
    return {"token": receiver.token}


def a_shard(shard: int = 0, of: int = 2, generation: int = 5, step: int = 2, nbytes: int = 1000) -> dict[str, int]:
    return {
        "generation": generation,
        "step": step,
        "shard": shard,
        "of": of,
        "nbytes": nbytes,
        "header_bytes": 0,
    }


def test_a_sender_lost_in_the_middle_fails_the_attempt_and_a_newer_one_succeeds(stage: Stage) -> None:
    receiver, survivor = stage.receiver(), stage.survivor()
    lost = stage.foreign(receiver, introduction(receiver), a_shard(shard=1), b"half of it")
    lost.close()

    assert receiver.wait(LONG_S) is None
    assert receiver.failed == "shard 1 of 2: the connection ended"

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
        until(lambda: len(receiver._connections) == 1, "it is connected")
        sender.kill()

    until(lambda: receiver.failed, "the attempt failed")
    assert receiver.failed.startswith("shard 1 of 2: ")
    assert receiver.poll() is None


def test_a_silent_sender_fails_the_attempt(stage: Stage) -> None:
    receiver = stage.receiver(silence_s=0.05)
    stage.foreign(receiver, introduction(receiver), a_shard(), b"some")

    assert receiver.wait(LONG_S) is None
    assert receiver.failed == "shard 0 of 2: timed out"


def test_bytes_that_were_damaged_fail_the_attempt(stage: Stage) -> None:
    receiver = stage.receiver()
    stage.foreign(receiver, introduction(receiver), a_shard(of=1), bytes(1000), {"crc32": 1})

    assert receiver.wait(LONG_S) is None
    assert receiver.failed == "shard 0 of 1: it arrived damaged"


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
def test_what_does_not_belong_to_the_attempt_is_closed_while_it_goes_on(stage: Stage, late: object) -> None:
    receiver = stage.receiver()
    first = stage.foreign(receiver, introduction(receiver), a_shard(shard=0), bytes(10))
    until(lambda: receiver._attempt is not None, "the attempt began")

    assert was_closed(stage.foreign(receiver, introduction(receiver), late))

    checksum = {"crc32": zlib.crc32(bytes(500))}
    first.sendall(bytes(490) + json.dumps(checksum).encode() + b"\n")
    stage.foreign(receiver, introduction(receiver), a_shard(shard=1), bytes(500), checksum)
    assert received(receiver).data == bytes(1000)


def test_a_restart_drops_what_came_for_the_world_before(stage: Stage) -> None:
    receiver, survivor = stage.receiver(), stage.survivor()
    old = stage.foreign(receiver, introduction(receiver), a_shard(), b"half of it")
    waiting = stage.foreign(receiver, introduction(receiver))
    until(lambda: 5 in receiver._connections.values(), "the old attempt began")

    receiver.restart(6)

    assert was_closed(old)
    assert receiver.failed == ""
    survivor.stream(receiver, generation=6, step=9)
    assert received(receiver).step == 9
    until(lambda: len(receiver._connections) == 2, "the one that waits for its switch is still welcome")
    waiting.close()


def test_a_state_that_comes_before_the_joiner_knows_its_world_waits_for_it(stage: Stage) -> None:
    receiver, survivor = stage.receiver(generation=5), stage.survivor()
    survivor.stream(receiver, generation=6)
    until(lambda: receiver._connections, "it is connected")
    assert receiver.wait(0.05) is None

    receiver.restart(6)

    assert received(receiver).generation == 6


def test_a_state_for_a_world_that_never_comes_is_dropped(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.sdk.receiver.EARLY_S", 0.05)
    receiver = stage.receiver(generation=5)

    assert was_closed(stage.foreign(receiver, introduction(receiver), a_shard(generation=6)))
    assert receiver.poll() is None


def test_a_state_that_was_not_fetched_is_dropped_by_a_restart(stage: Stage) -> None:
    receiver, survivor = stage.receiver(), stage.survivor()
    assert survivor.stream(receiver).sent.wait(LONG_S)
    until(lambda: receiver._attempt is not None and receiver._attempt.complete, "it came")

    receiver.restart(6)

    assert receiver.poll() is None
    survivor.stream(receiver, generation=6)
    assert received(receiver).generation == 6


def test_a_joiner_that_refuses_the_connection_is_recorded_and_the_next_one_is_served(stage: Stage) -> None:
    gone, receiver, survivor = stage.receiver(), stage.receiver(), stage.survivor()
    gone.close()
    survivor.streamer.prepare((LOOPBACK, gone.port), gone.token, 1000)

    job = survivor.stream(gone)

    assert job.sent.wait(LONG_S)
    assert job.error.startswith(f"shard 0 of 1 did not get to 127.0.0.1:{gone.port}: ")
    assert job.copied.is_set()
    survivor.stream(receiver)
    assert differences(loaded(received(receiver)).state, survivor.rank.state) == []


def test_a_joiner_that_goes_in_the_middle_is_recorded_and_the_next_one_is_served(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    with socket.create_server((LOOPBACK, 0)) as leaving:
        job = survivor.job(receiver)
        job.address = (LOOPBACK, leaving.getsockname()[1])
        job.header = bytes(64 << 20)
        survivor.streamer.offer(job)
        sock, _ = leaving.accept()
        sock.recv(1000)
        sock.close()
        assert job.sent.wait(LONG_S)

    assert "did not get to" in job.error
    survivor.stream(receiver)
    assert differences(loaded(received(receiver)).state, survivor.rank.state) == []


class Unreadable:
    def nbytes(self) -> int:
        return 1000

    def copy_shard(self, shard: int, of: int, staging: Staging) -> memoryview:
        raise RuntimeError("device lost")


def test_a_copy_that_fails_lets_training_go_on_and_the_next_job_come(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    job = survivor.job(receiver)
    job.state = Unreadable()
    survivor.streamer.offer(job)

    assert job.copied.wait(LONG_S)
    assert job.error == "could not copy shard 0 of 1: device lost"
    survivor.stream(receiver)
    assert differences(loaded(received(receiver)).state, survivor.rank.state) == []


class SlowToCopy:
    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def nbytes(self) -> int:
        return 1000

    def copy_shard(self, shard: int, of: int, staging: Staging) -> memoryview:
        self.asked.set()
        assert self.go_on.wait(LONG_S)
        return staging.view(1000)


def test_a_copy_that_training_could_not_wait_for_is_never_sent(stage: Stage) -> None:
    survivor, receiver, slow = stage.survivor(), stage.receiver(), SlowToCopy()
    job = survivor.job(receiver)
    job.state = slow
    survivor.streamer.offer(job)
    assert slow.asked.wait(LONG_S)

    job.abandon()
    slow.go_on.set()

    assert job.sent.wait(LONG_S)
    assert job.error == "abandoned"
    survivor.stream(receiver, step=1)
    assert received(receiver).step == 1, "nothing newer came before"


def test_a_second_attempt_for_the_same_joiner_has_its_own_connection(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    survivor.stream(receiver, step=2)
    assert received(receiver).step == 2

    survivor.rank.step(12)
    survivor.stream(receiver, step=3)
    snapshot = received(receiver)

    assert snapshot.step == 3
    assert differences(loaded(snapshot).state, survivor.rank.state) == []


def threads_of_streams() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("tradewind-stream", "tradewind-receiver", "tradewind-shard"))]


def test_closing_ends_all_threads_also_those_in_the_middle(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    survivor.streamer.prepare((LOOPBACK, receiver.port), receiver.token, 1000)
    survivor.stream(receiver)
    received(receiver)
    with socket.create_server((LOOPBACK, 0)) as deaf:
        stuck = survivor.job(receiver)
        stuck.address = (LOOPBACK, deaf.getsockname()[1])
        stuck.header = bytes(64 << 20)
        survivor.streamer.offer(stuck)
        assert stuck.copied.wait(LONG_S)

        survivor.streamer.close()
        receiver.close()

        until(lambda: not threads_of_streams(), "all threads ended")
        assert stuck.error != ""


PROCESS = """
from tradewind.sdk.stream import Receiver, Streamer
receiver = Receiver("127.0.0.1")
streamer = Streamer({})
streamer.prepare(("127.0.0.1", receiver.port), receiver.token, 1000)
print("ends")
"""


def test_threads_do_not_keep_a_process_that_is_done() -> None:
    ended = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ends\n", "")
