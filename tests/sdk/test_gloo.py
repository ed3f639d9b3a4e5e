"""How a gloo group judges operations, and which connections are its own."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from torch._C._distributed_c10d import HashStore, Work

from tradewind.sdk.groups.gloo import GlooGroup, shut_sockets
from tradewind.sdk.groups.group import NOT_CONNECTED


class DoneTooLate:
    """An operation whose first wait times out, and that is complete right afterwards."""

    def __init__(self, *, success: bool) -> None:
        self._success = success
        self._waits = 0

    def wait(self, timeout: timedelta) -> bool:
        self._waits += 1
        if self._waits == 1:
            raise RuntimeError("Operation timed out!")
        if not self._success:
            raise RuntimeError("Connection closed by peer")
        return True

    def is_completed(self) -> bool:
        return True


@pytest.mark.parametrize("success", [True, False])
def test_an_operation_that_ends_just_after_the_wait_for_it_is_judged_by_how_it_ended(success: bool) -> None:
    group = GlooGroup(HashStore(), rank=0, size=1, address="127.0.0.1")
    assert group.finish(cast(Work, DoneTooLate(success=success)), lambda: False) is success


def test_a_group_whose_first_sum_fails_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GlooGroup, "all_reduce", lambda *_: DoneTooLate(success=False))
    with pytest.raises(RuntimeError, match=NOT_CONNECTED):
        GlooGroup(HashStore(), rank=0, size=1, address="127.0.0.1")


LEAVES = """
import sys, time
import torch
from torch._C._distributed_c10d import FileStore
from tradewind.sdk.groups.gloo import GlooGroup

rank = int(sys.argv[2])
group = GlooGroup(FileStore(sys.argv[1], 2), rank, 2, "127.0.0.1")
if rank == 1:
    time.sleep(600)
flat = torch.ones(1_000_000)
done = group.finish(group.all_reduce(flat), lambda: True)
group.leave_behind(flat)
print("done" if done else "left", flush=True)
"""


def test_a_process_ends_though_an_operation_that_it_left_behind_does_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEAVES, str(tmp_path / "meeting")]
    with subprocess.Popen([*command, "1"]) as silent:
        try:
            leaving_worker = subprocess.run([*command, "0"], timeout=60, capture_output=True, text=True, check=True)
        finally:
            silent.kill()
    assert leaving_worker.stdout == "left\n"


def a_connection(listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    return client, server


@pytest.fixture
def default_timeout() -> Iterator[Callable[[float], None]]:
    yield socket.setdefaulttimeout
    socket.setdefaulttimeout(None)


def test_only_connections_with_these_ports_are_shut_and_no_other_one_is_changed(
    default_timeout: Callable[[float], None],
) -> None:
    with ExitStack() as closing:
        listener, other = (closing.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
        client, server = map(closing.enter_context, a_connection(listener))
        one, another = map(closing.enter_context, a_connection(other))
        here, there = map(closing.enter_context, socket.socketpair())
        default_timeout(5.0)  # as a script may: a socket that Python makes an object of is non-blocking from then on
        shut_sockets(frozenset({listener.getsockname()[1]}))
        assert client.recv(1) == server.recv(1) == b""
        assert all(os.get_blocking(each.fileno()) for each in (listener, client, server, one, another, here, there))
        for near, far in ((one, another), (here, there), map(closing.enter_context, a_connection(listener))):
            near.sendall(b"x")
            assert far.recv(1) == b"x"
