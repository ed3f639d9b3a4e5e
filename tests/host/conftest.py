import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.agent import Agent
from tests.light import light_torch


@pytest.fixture(scope="package")
def warm_host() -> Iterator[Agent]:
    """One host for all tests that leave it alive: importing torch takes seconds."""
    agent = Agent()
    yield agent
    agent.close()


@pytest.fixture
def host(warm_host: Agent) -> Iterator[Agent]:
    warm_host.wait_for("hello")
    yield warm_host
    assert warm_host.process.poll() is None, "the shared host has died"
    warm_host.send(type="stop", generation=1_000_000, grace_s=0)
    warm_host.wait_for("stopped", 1_000_000)
    warm_host.messages = [message for message in warm_host.messages if message["type"] == "hello"]


@pytest.fixture
def own_host(tmp_path: Path) -> Iterator[Agent]:
    """A host for a test that ends it, warm at once."""
    agent = Agent(env={**os.environ, "PYTHONPATH": light_torch(tmp_path / "light")})
    yield agent
    agent.close()


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that is bound, but refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
