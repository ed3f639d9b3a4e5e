"""A real master process and a client of its API."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from messages.api import Health, JobView, Version
from messages.ids import JobName
from messages.jobs import Failures, JobSpec, Timeouts
from runtime.children import free_port
from tests import specs
from tests.conftest import PATIENCE_S, eventual_answer
from tests.light import light_torch


def a_spec(name: str, workers: int = 2, *, least: int = 1, failures: int = 0, ranks: int = 1) -> JobSpec:
    """A spec with short delays."""
    quick = {"failures": Failures(max=failures, backoff_s=0.1), "timeouts": Timeouts(stop_grace_s=1.0)}
    return specs.a_spec(name, workers, least=least, ranks=ranks, **quick)


@dataclass(frozen=True)
class Api:
    session: aiohttp.ClientSession
    url: str

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        async with self.session.request(method, self.url + path, data=data, **more) as response:
            return response.status, msgspec.json.decode(await response.read())

    async def ask_leader(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Asks until a leader answers: on a busy machine the master may lose its lease for a moment."""
        return await eventual_answer(
            lambda: self.ask(method, path, body), lambda got: got[0] != 503, "the master to lead"
        )

    async def submit(self, spec: JobSpec) -> JobView:
        status, view = await self.ask_leader("POST", "/v1/jobs", spec)
        assert status == 201, view
        return msgspec.convert(view, JobView)

    async def job(self, name: str) -> JobView:
        status, view = await self.ask_leader("GET", f"/v1/jobs/{name}")
        assert status == 200, view
        return msgspec.convert(view, JobView)

    async def until_phase(self, name: str, phase: str) -> JobView:
        return await eventual_answer(lambda: self.job(name), lambda view: view.phase == phase, f"{name} is {phase}")

    async def health(self) -> Health:
        _, health = await self.ask("GET", "/healthz")
        return msgspec.convert(health, Health)

    async def version(self) -> Version:
        _, version = await self.ask_leader("GET", "/version")
        return msgspec.convert(version, Version)

    async def lines(self, path: str, seen: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
        """Reads lines until the stream ends; appends each to `seen` at once."""
        seen = [] if seen is None else seen
        async with self.session.get(self.url + path, timeout=aiohttp.ClientTimeout(PATIENCE_S)) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                if line.strip():
                    seen.append(msgspec.json.decode(line))
        return seen

    async def kinds(self, name: JobName | str) -> list[str]:
        return [event["kind"] for event in await self.lines(f"/v1/jobs/{name}/events")]


class MasterProcess:
    """A master process with light stores: its workers exist only on the bus, and no rank uses a store."""

    def __init__(self, nats_url: str, folder: Path, **environ: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"master-{self.port}.log"
        first = free_port()
        self._environ = os.environ | {
            "PYTHONPATH": light_torch(folder / "light"),
            "TRADEWIND_NATS_URL": nats_url,
            "TRADEWIND_API_PORT": str(self.port),
            "TRADEWIND_STORE_PORTS": f"{first}-{min(first + 50, 65_535)}",
            **environ,
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "controlplane.master", env=self._environ, stderr=log, stdout=log
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def wait(self) -> int:
        assert self._process is not None
        async with asyncio.timeout(PATIENCE_S):
            return await self._process.wait()

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def said(self) -> str:
        return self.log.read_text()


@contextlib.asynccontextmanager
async def running_master(nats_url: str, folder: Path, **environ: str) -> AsyncIterator[tuple[MasterProcess, Api]]:
    process = MasterProcess(nats_url, folder, **environ)
    await process.start()
    headers = {"Authorization": f"Bearer {token}"} if (token := environ.get("TRADEWIND_API_TOKEN")) else {}
    try:
        async with aiohttp.ClientSession(headers=headers) as session:
            api = Api(session, process.url)
            await eventual_answer(lambda: answers(api), bool, "the API to answer")
            yield process, api
    finally:
        await process.kill()


async def answers(api: Api) -> bool:
    try:
        await api.health()
    except aiohttp.ClientError:
        return False
    return True
