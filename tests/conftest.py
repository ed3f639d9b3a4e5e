"""What tests share: a real NATS server of their own, buses that are closed again, and waiting for a condition."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from runtime.bus import Bus, BusSettings
from runtime.nats_server import NatsServer
from tests.escaping import a_name, escaped
from tests.light import light_torch
from tests.order import place_of

Connect = Callable[..., Awaitable[Bus]]
TOLD = "told"

# A change is judged by the same cases on every machine; those who look for new ones set HYPOTHESIS_PROFILE=explore.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_configure() -> None:
    """A shell that starts tests in the background lets them, and all that they start, ignore ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
    """With JetStream, on a free port; `kill`, `stop` and `start` it at will: it keeps its port and its folder."""
    async with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def connect(nats_server: NatsServer) -> AsyncIterator[Connect]:
    """`await connect("master")` gives a bus at `nats_server`, which is closed after the test."""
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


async def eventually(condition: Callable[[], object], timeout_s: float = 60.0, what: str = "") -> None:
    """Returns as soon as the condition holds; fails the test when it does not, on however busy a machine."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(f"not within {timeout_s} s: {what or condition}")
        await asyncio.sleep(0.01)


@pytest.fixture
def without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts and stores that are started in this test are warm at once; for stories in which nothing is computed."""
    monkeypatch.setenv("PYTHONPATH", light_torch(tmp_path / "light"))


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """A line that is shown at the end of the run, whichever process ran the test."""
    return lambda line: record_property(TOLD, line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place_of(item.path))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, line in report.user_properties:
            if name == TOLD:
                terminalreporter.write_line(str(line))
