"""An agent and a host in containers of their own: neither starts the other, and either may come first."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from agents.worker.host import find_host_file
from agents.worker.settings import WorkerSettings
from messages.labels import HOST_SOCKET
from messages.workers import WorkerPhase
from runtime import children
from runtime.errors import UserError
from runtime.nats_server import NatsServer
from tests.conftest import eventually
from tests.light import light_torch
from tests.worker.conftest import master
from tests.worker.fakes import (
    NO_STORE,
    SECONDS,
    Agent,
    FakeMaster,
    a_script,
    settings_for,
)

__all__ = ["master"]

TELLS = """
import os
print(os.environ["OF_THE_CONTAINER"], os.environ["OF_THE_JOB"], os.environ["RANK"], os.getcwd(), flush=True)
"""
WAITS = "import time; print('waits', flush=True); time.sleep(600)"
UID = "w1"


def external(nats_server: NatsServer, run_dir: Path, **changed: object) -> WorkerSettings:
    settings = msgspec.structs.replace(settings_for(nats_server.url, run_dir, uid=UID), external_host=True)
    return msgspec.structs.replace(settings, **changed)


@contextlib.asynccontextmanager
async def an_agent(settings: WorkerSettings) -> AsyncIterator[Agent]:
    agent = Agent(settings)
    try:
        yield agent
    finally:
        await agent.end()


@contextlib.asynccontextmanager
async def a_host(tmp_path: Path, *, wait_s: float = SECONDS, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Starts a host as its container would."""
    folder = tmp_path / "image"
    folder.mkdir(exist_ok=True)
    process = await children.start(
        (
            *(sys.executable, str(find_host_file(None)), "--socket", str(tmp_path / "run" / UID / "host.sock")),
            *("--wait-s", str(wait_s)),
        ),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": light_torch(tmp_path / "light"), **env},
        cwd=folder,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        await children.end(process, 0.0)


async def test_a_host_may_come_first_or_last_and_its_trainers_have_its_environment_and_the_jobs(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with a_host(tmp_path, OF_THE_CONTAINER="red"), an_agent(external(nats_server, tmp_path / "run")):
        [worker] = await master.workers()
        launch = a_script(tmp_path / "job", TELLS)
        launch = msgspec.structs.replace(launch, workdir=None, env={"OF_THE_JOB": "green"})
        master.assigns(1, worker, launch=launch, store=NO_STORE)
        await master.until(worker, WorkerPhase.ENDED, 1)
        await master.until_lines(0, [f"red green 0 {tmp_path / 'image'}"])


async def test_a_host_that_is_lost_is_waited_for_again(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent(external(nats_server, tmp_path / "run")):
        async with a_host(tmp_path) as first:
            [worker] = await master.workers()
            master.assigns(1, worker, launch=a_script(tmp_path / "job", WAITS), store=NO_STORE)
            await master.until_lines(0, ["waits"])
            first.kill()
            ended = await master.until(worker, WorkerPhase.ENDED, 1)
            assert [how.signal for how in ended.exits] == ["SIGKILL"]
        async with a_host(tmp_path):
            master.assigns(2, worker, launch=a_script(tmp_path / "job", WAITS), store=NO_STORE)
            await master.until(worker, WorkerPhase.READY, 2)


async def test_the_one_that_connects_besides_the_host_is_turned_away_and_disturbs_nothing(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with a_host(tmp_path), an_agent(external(nats_server, tmp_path / "run")):
        [worker] = await master.workers()
        for _ in range(3):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "run" / UID / "host.sock")
            async with asyncio.timeout(SECONDS):
                assert await reader.read() == b""
            writer.close()
        master.assigns(1, worker, launch=a_script(tmp_path / "job", WAITS), store=NO_STORE)
        await master.until_lines(0, ["waits"])


async def test_a_host_ends_when_its_agent_does_and_leaves_no_trainer(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with a_host(tmp_path) as host:
        async with an_agent(external(nats_server, tmp_path / "run")):
            [worker] = await master.workers()
            master.assigns(1, worker, launch=a_script(tmp_path / "job", WAITS), store=NO_STORE)
            await master.until_lines(0, ["waits"])
        async with asyncio.timeout(SECONDS):
            assert await host.wait() == 0


async def test_an_agent_whose_host_does_not_come_gives_up(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    agent = Agent(external(nats_server, tmp_path / "run", host_within_s=0.2, host_losses=1))
    assert await agent.ended() == 1
    assert any(fact == "left" for _, fact, _ in master.facts)


async def test_an_agent_that_still_waits_for_its_host_leaves_when_told(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    agent = Agent(external(nats_server, tmp_path / "run"))
    await eventually(lambda: master.statuses, SECONDS, "the agent")
    agent.stop.on_signal(signal.SIGINT)
    assert await agent.ended() == 0


async def test_a_host_that_hangs_is_given_up_and_its_end_is_not_waited_for_for_ever(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.worker.host_connection.STOP_ANSWER_S", 0.2)
    monkeypatch.setattr("agents.worker.external_host.GONE_S", 0.2)
    agent = Agent(external(nats_server, tmp_path / "run", host_losses=1))
    async with a_host(tmp_path) as host:
        [worker] = await master.workers()
        master.assigns(1, worker, launch=a_script(tmp_path / "job", WAITS), store=NO_STORE)
        await master.until_lines(0, ["waits"])
        host.send_signal(signal.SIGSTOP)
        master.halts(2, grace_s=0.1)
        assert await agent.ended() == 1


async def test_a_host_waits_as_long_as_it_was_told_and_ends_when_told(tmp_path: Path) -> None:
    async with a_host(tmp_path, wait_s=0.1) as impatient:
        async with asyncio.timeout(SECONDS):
            assert await impatient.wait() == 1
        assert impatient.stderr is not None
        assert str(tmp_path / "run" / UID / "host.sock").encode() in await impatient.stderr.read()
    async with a_host(tmp_path) as patient:
        await asyncio.sleep(0.5)
        assert patient.returncode is None
        patient.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            assert await patient.wait() in (128 + signal.SIGTERM, -signal.SIGTERM)


async def test_a_folder_whose_name_is_too_long_for_the_socket_is_a_mistake(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    agent = Agent(external(nats_server, tmp_path / ("deep" * 40)))
    with pytest.raises(UserError, match=re.escape(HOST_SOCKET)):
        await agent.ended()
