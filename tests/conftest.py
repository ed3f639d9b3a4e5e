"""Shared fixtures and helpers: a real NATS server, buses that are closed after the test, waits for conditions."""

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings

from runtime.bus import Bus, BusSettings
from runtime.nats_server import NatsServer
from tests.escaping import a_name, escaped
from tests.light import light_torch
from tests.order import place_of
from tests.warm import Warm

Connect = Callable[..., Awaitable[Bus]]
REPORTED = "reported"
T = TypeVar("T")
PATIENCE_S = 60.0
"""Seconds for a busy machine; nothing takes that long."""

# The same cases run on every machine; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_configure() -> None:
    """Restores ctrl-C, which a shell that starts tests in the background makes them and their children ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # until all tests are collected: their objects stay


def pytest_collection_finish() -> None:
    """Leaves the collected tests out of garbage collections, which would visit them all each time."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def escape() -> Iterator[str]:
    """The name of a process that escapes; see `tests/escaping.py`."""
    name = a_name()
    yield name
    for pid in escaped(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A server with JetStream on a free port; it keeps port and folder through `kill`, `stop` and `start`."""
    async with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def connect(nats_server: NatsServer) -> AsyncIterator[Connect]:
    """A function that opens buses at `nats_server`, such as `await connect("master")`, closed after the test."""
    opened: list[Bus] = []

    async def open_bus(name: str = "test", on_change: Callable[[bool], None] = lambda connected: None) -> Bus:
        bus = await Bus.connect(BusSettings(url=nats_server.url, name=name, connect_timeout_s=20.0), on_change)
        opened.append(bus)
        return bus

    yield open_bus
    for bus in opened:
        await bus.close()


@pytest.fixture
async def bus(connect: Connect) -> Bus:
    return await connect()


async def eventually(condition: Callable[[], object], timeout_s: float = PATIENCE_S, what: str = "") -> None:
    """Returns as soon as the condition holds; otherwise fails the test."""
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline_s:
            pytest.fail(f"not within {timeout_s:g} s: {what or condition}")
        await asyncio.sleep(0.01)


async def eventual_answer(
    ask: Callable[[], Awaitable[T | None]],
    holds: Callable[[T], object] = bool,
    what: str = "",
    timeout_s: float = PATIENCE_S,
) -> T:
    """Asks until there is an answer that holds, and returns it; otherwise fails the test."""
    answer: T | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                answer = await ask()
                if answer is not None and holds(answer):
                    return answer
                await asyncio.sleep(0.03)
    except TimeoutError:
        pytest.fail(f"not within {timeout_s:g} s: {what or ask}; the last answer was {answer}")


def eventually_blocking(condition: Callable[[], object], what: str = "", timeout_s: float = PATIENCE_S) -> None:
    """Returns as soon as the condition holds, for tests without an event loop; otherwise fails the test."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            pytest.fail(f"not within {timeout_s:g} s: {what or condition}")
        time.sleep(0.005)


@pytest.fixture
def without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes hosts and stores warm at once, for tests that compute nothing."""
    monkeypatch.setenv("PYTHONPATH", light_torch(tmp_path / "light"))


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """A server that forks hosts and stores with torch imported; `Warm.environ` makes the processes of a test use it."""
    server = Warm()
    yield server
    server.close()


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """A function that adds a line to the end of the run's output, from any process."""
    return lambda line: record_property(REPORTED, line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place_of(item.path))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, line in report.user_properties:
            if name == REPORTED:
                terminalreporter.write_line(str(line))
