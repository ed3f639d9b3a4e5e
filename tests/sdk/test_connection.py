"""The trainer's connection to its worker-agent: no partial lines, unreadable orders, and failures to obey."""

import json
import queue
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tradewind.protocol import trainer as protocol
from tradewind.protocol.trainer import Assign, Attach, Halt, Locate, Order, Store
from tradewind.sdk.agent import connection
from tradewind.sdk.agent.connection import AgentConnection, connect


def test_no_message_follows_one_that_was_sent_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_SEND_TIMEOUT_S", 0.01)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent"))
        listener.listen()
        connected = AgentConnection(str(tmp_path / "agent"), Attach(1, 0, 0))
        agent, _ = listener.accept()
        connected.send(b"x" * 8_000_000 + b"\n")  # larger than the kernel's buffer, and the agent does not read yet
        with agent, agent.makefile("rb") as lines:
            agent.settimeout(20)
            assert lines.readline().startswith(b'{"type":"attach"')
            half = lines.readline()  # empties the buffer
            connected.send(b"next\n")
            assert half.startswith(b"x") and not half.endswith(b"\n") and lines.read() == b""


def test_a_joining_trainer_attaches_with_the_rank_of_its_fork(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent"))
        listener.listen()
        environ = {"TRADEWIND_TRAINER_SOCKET": str(tmp_path / "agent"), "TRADEWIND_GENERATION": "4"}
        connected = connect({**environ, "TRADEWIND_RANK": "5", "RANK": "0", "LOCAL_RANK": "1", "WORLD_SIZE": "1"})
        assert connected is not None
        agent, _ = listener.accept()
        with agent, agent.makefile("rb") as lines:
            assert b'"generation":4,"rank":5,"local_rank":1' in lines.readline()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent"))
        listener.listen()
        listener.settimeout(60)
        yield listener


def assignment(**changed: Any) -> bytes:
    assign = protocol.encode_order(Assign(2, 1, 2, "planned", Store("127.0.0.1", 1), previous=(0, 1)))
    return json.dumps({**json.loads(assign), **changed}).encode() + b"\n"


def test_unreadable_orders_are_ignored_and_the_next_is_obeyed(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(protocol, "ORDER_LIMIT_BYTES", 1000)
    obeyed: queue.SimpleQueue[Order] = queue.SimpleQueue()
    AgentConnection(listener.getsockname(), Attach(1, 0)).listen(obeyed.put)
    agent, _ = listener.accept()
    with agent:
        agent.sendall(b'no JSON\n{"type":"halt"}\n{"type":"of_a_newer_version"}\n')
        agent.sendall(assignment(previous=[]) + assignment(rank=2) + assignment(held=[[]]) + assignment(laggards=[2]))
        agent.sendall(b'{"type":"locate"' + b" " * 1_000_000 + b"}\n")
        agent.sendall(protocol.encode_order(Halt(7)))
        assert obeyed.get(timeout=20) == Halt(7)
    printed = capfd.readouterr().err
    assert printed.count("\n") == 1 and printed.startswith("tradewind: ") and "JSON" in printed


FAILS_TO_OBEY = """
import sys, threading
from tradewind.protocol.trainer import Attach
from tradewind.sdk.agent.connection import AgentConnection

def obey(order):
    raise KeyError("bug")

print("printed before", end="")
AgentConnection(sys.argv[1], Attach(1, 0)).listen(obey)
threading.Event().wait(60)
"""


def test_a_trainer_that_fails_to_obey_an_order_exits_with_an_error(listener: socket.socket) -> None:
    command = [sys.executable, "-c", FAILS_TO_OBEY, listener.getsockname()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as trainer:
        agent, _ = listener.accept()
        with agent:
            agent.sendall(protocol.encode_order(Locate()))
            output, errors = trainer.communicate(timeout=30)
    assert trainer.returncode == 1 and output == "printed before"
    assert "KeyError: 'bug'" in errors and errors.splitlines()[-1].startswith("tradewind: ")
