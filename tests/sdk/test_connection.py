"""The connection to the worker-agent carries whole messages, or none."""

import socket
from pathlib import Path

import pytest

from tradewind.protocol.trainer import Attach
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
