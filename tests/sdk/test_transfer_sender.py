"""Failures of a transfer at the sender: receivers that are lost, copies that fail, the end."""

import socket
import subprocess
import sys
import threading
from dataclasses import replace

from tests.conftest import eventually_blocking
from tests.sdk.states import differences
from tests.sdk.transfers import LONG_S, LOOPBACK, Stage, loaded, received
from tradewind.sdk.training_state.tensor_bytes import Staging


def test_a_joining_worker_that_does_not_read_delays_neither_the_next_copy_nor_another_joining_worker(
    stage: Stage,
) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    with socket.create_server((LOOPBACK, 0)) as deaf:
        stuck = survivor.job(receiver)
        stuck.to = replace(stuck.to, address=(LOOPBACK, deaf.getsockname()[1]))
        survivor.streamer.offer(stuck)
        survivor.stream(receiver)

        assert stuck.copied.wait(LONG_S)
        assert differences(loaded(received(receiver)).state, survivor.rank.state) == []


def test_a_joining_worker_that_refuses_the_connection_is_recorded_and_the_next_one_is_served(stage: Stage) -> None:
    gone, receiver, survivor = stage.receiver(), stage.receiver(), stage.survivor()
    gone.close()
    survivor.streamer.prepare(gone.destination(), 1000, 1)

    job = survivor.stream(gone)

    assert job.sent.wait(LONG_S)
    assert f" 0 of 1 to {LOOPBACK}:{gone.port}: " in job.error
    assert job.copied.is_set()
    survivor.stream(receiver)
    assert differences(loaded(received(receiver)).state, survivor.rank.state) == []


def test_a_joining_worker_that_goes_in_the_middle_is_recorded_and_the_next_one_is_served(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    with socket.create_server((LOOPBACK, 0)) as leaving:
        job = survivor.job(receiver)
        job.to = replace(job.to, address=(LOOPBACK, leaving.getsockname()[1]))
        job.header = bytes(64 << 20)
        survivor.streamer.offer(job)
        sock, _ = leaving.accept()
        sock.recv(1000)
        sock.close()
        assert job.sent.wait(LONG_S)
        port = leaving.getsockname()[1]

    assert f" 0 of 1 to {LOOPBACK}:{port}: " in job.error
    survivor.stream(receiver)
    assert differences(loaded(received(receiver)).state, survivor.rank.state) == []


LOST = "device lost"


class Unreadable:
    def nbytes(self) -> int:
        return 1000

    def copy_shard(self, shard: int, of: int, staging: Staging) -> memoryview:
        raise RuntimeError(LOST)


def test_a_copy_that_fails_lets_training_continue_and_the_next_job_come(stage: Stage) -> None:
    survivor, receiver = stage.survivor(), stage.receiver()
    job = survivor.job(receiver)
    job.state = Unreadable()
    survivor.streamer.offer(job)

    assert job.copied.wait(LONG_S)
    assert job.error.endswith(f" 0 of 1: {LOST}")
    survivor.stream(receiver)
    assert differences(loaded(received(receiver)).state, survivor.rank.state) == []


class SlowToCopy:
    def __init__(self) -> None:
        self.asked = threading.Event()
        self.continue_run = threading.Event()

    def nbytes(self) -> int:
        return 1000

    def copy_shard(self, shard: int, of: int, staging: Staging) -> memoryview:
        self.asked.set()
        assert self.continue_run.wait(LONG_S)
        return staging.view(1000)


def test_a_copy_that_training_could_not_wait_for_is_never_sent(stage: Stage) -> None:
    survivor, receiver, slow = stage.survivor(), stage.receiver(), SlowToCopy()
    job = survivor.job(receiver)
    job.state = slow
    survivor.streamer.offer(job)
    assert slow.asked.wait(LONG_S)

    job.abandon()
    slow.continue_run.set()

    assert job.sent.wait(LONG_S)
    assert job.error == "abandoned"
    survivor.stream(receiver, step=1)
    assert received(receiver).step == 1, "nothing newer came before"


def threads_of_streams() -> set[threading.Thread]:
    names = ("tradewind-stream", "tradewind-receiver", "tradewind-shard")
    return {thread for thread in threading.enumerate() if thread.name.startswith(names)}


def test_closing_ends_all_threads_also_those_in_the_middle(stage: Stage) -> None:
    of_other_tests = threads_of_streams()
    survivor, receiver = stage.survivor(), stage.receiver()
    survivor.streamer.prepare(receiver.destination(), 1000, 1)
    survivor.stream(receiver)
    received(receiver)
    with socket.create_server((LOOPBACK, 0)) as deaf:
        stuck = survivor.job(receiver)
        stuck.to = replace(stuck.to, address=(LOOPBACK, deaf.getsockname()[1]))
        stuck.header = bytes(64 << 20)
        survivor.streamer.offer(stuck)
        assert stuck.copied.wait(LONG_S)

        survivor.streamer.close()
        receiver.close()

        eventually_blocking(lambda: threads_of_streams() <= of_other_tests, what="all threads ended")
        assert stuck.error != ""


PROCESS = """
from tradewind.sdk.transfer.receiver import Receiver
from tradewind.sdk.transfer.sender import Streamer
from tradewind.sdk.groups.group import Destination
port, token = Receiver().listen(1, "127.0.0.1", ["127.0.0.1"], 2)
streamer = Streamer({})
streamer.prepare(Destination(("127.0.0.1", port), token), 1000, 1)
print("ends")
"""


def test_threads_do_not_keep_a_process_that_is_done() -> None:
    ended = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ends\n", "")
