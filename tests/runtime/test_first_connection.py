"""A role is started before its NATS server is."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runtime import first_connection
from runtime.children import free_port
from runtime.errors import BusAway, UserError
from runtime.first_connection import connect_when_up
from runtime.nats_server import NatsServer
from runtime.settings import BusSettings
from tests.conftest import eventually
from tests.light import light_torch

ROLES = {
    "master": ("--api-port", "0"),
    "cluster": ("--end-workers",),
    "worker": ("--job", "job"),
}


def settings_for(url: str) -> BusSettings:
    return BusSettings(url=url, connect_timeout_s=0.05)


async def test_it_waits_says_so_once_and_continues_when_the_server_is_up(nats_server: NatsServer) -> None:
    await nats_server.stop()
    with capture_logs() as logs:
        waiting = asyncio.create_task(
            connect_when_up(BusSettings(url=nats_server.url, connect_timeout_s=0.3), asyncio.Event())
        )
        await eventually(lambda: logs, what="it to say what it waits for")
        await nats_server.start()
        bus = await waiting
    assert bus is not None
    await bus.close()
    [said] = [log for log in logs if log["event"] == "waiting_for_nats"]
    away = BusAway(nats_server.url, "connection refused")
    assert all(value in said["message"] for value in (away.url, away.why, away.hint))


async def test_it_says_from_time_to_time_that_it_still_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_connection, "TELL_EVERY_S", 0.1)
    asked = asyncio.Event()
    with capture_logs() as logs:
        waiting = asyncio.create_task(connect_when_up(settings_for(f"nats://127.0.0.1:{free_port()}"), asked))
        await eventually(lambda: len(logs) >= 3, what="more than one message")
        asked.set()
        assert await waiting is None


async def test_what_waiting_does_not_cure_is_raised_at_once() -> None:
    with pytest.raises(UserError, match="nats://host:port") as raised:
        await connect_when_up(settings_for("nats://host:port"), asyncio.Event())
    assert not isinstance(raised.value, BusAway)


async def test_it_gives_up_where_it_is_told_to() -> None:
    with pytest.raises(BusAway) as raised:
        await connect_when_up(settings_for(f"nats://127.0.0.1:{free_port()}"), asyncio.Event(), give_up_s=0.1)
    assert raised.value.why == "connection refused"


async def test_a_password_is_not_shown() -> None:
    with pytest.raises(BusAway) as raised:
        await connect_when_up(settings_for(f"nats://me:secret@127.0.0.1:{free_port()}"), asyncio.Event(), give_up_s=0.0)
    assert "secret" not in str(raised.value)


@contextlib.asynccontextmanager
async def a_role(role: str, url: str, folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    log, environ = folder / f"{role}.log", os.environ | {"PYTHONPATH": light_torch(folder / "light")}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tradewind", role, "--nats-url", url, *ROLES[role]),
            env=environ | ({"TRADEWIND_RUN_DIR": str(folder / "run")} if role != "master" else {}),
            stdout=output,
            stderr=output,
        )
    try:
        yield process, log
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


STARTED = {"master": "api_listening", "cluster": "cluster_controller_started", "worker": "worker_started"}


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
async def test_a_role_waits_for_a_server_that_is_started_later(role: str, tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    await server.start()
    await server.stop()
    async with a_role(role, server.url, tmp_path) as (process, log):
        await eventually(lambda: "Waiting for NATS at" in log.read_text(), what="it to wait")
        assert process.returncode is None
        await server.start()
        await eventually(lambda: STARTED[role] in log.read_text(), what="it to begin")
    await server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
async def test_a_role_that_waits_ends_when_it_is_asked_to(role: str, tmp_path: Path) -> None:
    async with a_role(role, f"nats://127.0.0.1:{free_port()}", tmp_path) as (process, log):
        await eventually(lambda: "Waiting for NATS at" in log.read_text(), what="it to wait")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20.0):
            assert await process.wait() == 0
        assert "Traceback" not in log.read_text()
