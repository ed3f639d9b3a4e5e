"""The nats-server is killed in the middle of a run: training continues and no line is lost."""

import asyncio
from pathlib import Path

import pytest

from messages.workers import WorkerPhase
from runtime.nats_server import NatsServer
from tests.conftest import eventually
from tests.worker.fakes import NO_STORE, SECONDS, FakeMaster, a_script, an_agent

LINES = 4000
PRINTS = f"""
import time
for line in range({LINES}):
    print("line", line, flush=True)
    time.sleep(0.002)
"""
AWAY_S = 6.0
"""Seconds without the bus: longer than one attempt to publish."""


@pytest.mark.usefixtures("without_torch")
async def test_a_server_that_is_killed_and_comes_back_loses_no_line(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    async with an_agent(nats_server.url, tmp_path / "run"):
        [worker] = await master.workers()
        master.assigns(1, worker, launch=a_script(tmp_path / "job", PRINTS), store=NO_STORE)
        await eventually(lambda: len(master.heard_lines) >= 3, SECONDS, "the first lines are stored")
        await nats_server.kill()
        await asyncio.sleep(AWAY_S)
        await nats_server.start()

        status = await master.until(worker, WorkerPhase.ENDED, 1)
        assert [ended.code for ended in status.exits] == [0]
    batches = await master.stored()
    assert [line for batch in batches for line in batch.lines] == [f"line {n}" for n in range(LINES)]
    starts = [batch.first_line for batch in batches]
    assert starts == [sum(len(earlier.lines) for earlier in batches[:n]) for n in range(len(batches))]
