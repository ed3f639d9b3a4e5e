"""The connection to the worker-agent carries whole messages, or none."""

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


def test_a_message_that_went_half_is_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_SEND_TIMEOUT_S", 0.01)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent"))
        listener.listen()
        told = AgentConnection(str(tmp_path / "agent"), Attach(1, 0, 0))
        agent, _ = listener.accept()
        told.send(b"x" * 8_000_000 + b"\n")  # more than the kernel keeps for an agent that does not read
        with agent, agent.makefile("rb") as lines:
            agent.settimeout(20)
            assert lines.readline().startswith(b'{"type":"attach"')
            half = lines.readline()  # which makes room for more
            told.send(b"next\n")
            assert half.startswith(b"x") and not half.endswith(b"\n") and lines.read() == b""


def test_one_that_joins_is_known_by_the_place_it_was_forked_under(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent"))
        listener.listen()
        environ = {"TRADEWIND_TRAINER_SOCKET": str(tmp_path / "agent"), "TRADEWIND_GENERATION": "4"}
        told = connect({**environ, "TRADEWIND_RANK": "5", "RANK": "0", "LOCAL_RANK": "1", "WORLD_SIZE": "1"})
        assert told is not None
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


def test_orders_that_cannot_be_read_are_ignored_and_the_next_is_obeyed(
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
    assert capfd.readouterr().err.count("tradewind: an order of the agent is ignored") == 1


DEAF = """
import sys, threading
from tradewind.protocol.trainer import Attach
from tradewind.sdk.agent.connection import AgentConnection

def obey(order):
    raise KeyError("a bug of the core")

print("said before", end="")
AgentConnection(sys.argv[1], Attach(1, 0)).listen(obey)
threading.Event().wait(60)
"""


def test_a_trainer_that_cannot_obey_ends_visibly_instead_of_training_on_deaf(listener: socket.socket) -> None:
    command = [sys.executable, "-c", DEAF, listener.getsockname()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as trainer:
        agent, _ = listener.accept()
        with agent:
            agent.sendall(protocol.encode_order(Locate()))
            told, errors = trainer.communicate(timeout=30)
    assert trainer.returncode == 1 and told == "said before"
    assert "KeyError: 'a bug of the core'" in errors and "this trainer ends" in errors
