"""Clouds as their nodes show them, each with a stand-in for what announces the end of a machine.

The hills are made up, and unlike Google's in all that agents must know: other labels and taints, a driver that is
mounted nowhere, and a source of notices that is polled.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from agents.clouds import registry
from agents.clouds.gke.cloud import CLOUD as GKE
from agents.clouds.gke.metadata import PREEMPTED_WHY
from agents.clouds.interface import Cloud, Machine, NodeTraits, Notice, NoticeOptions, NoticeSource, Tell
from agents.notice.main import watch
from agents.notice.settings import NoticeSettings
from runtime.kubernetes.configuration import ApiConfiguration
from runtime.process import Stop
from simulator.metadata_server import MAINTENANCE, PREEMPTED, Metadata, MetadataServers

POLL_S = 0.05
STORM = "a storm comes"


class HillsNotices:
    def __init__(self, host: str) -> None:
        self._url = f"http://{host}/storm"

    async def watch(self, tell: Tell) -> None:
        last: str | None = None
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(self._url) as response:
                    found = await response.text()
                if found != last:
                    last = found
                    tell(Notice(float(found), STORM) if found else None)
                await asyncio.sleep(POLL_S)


class HillsCloud:
    nodes = NodeTraits(
        pool_label="hills.example/field",
        spot_labels=(("hills.example/tenure", "on-loan"),),
        accelerator_label="hills.example/cards",
        going_taints=("hills.example/storm",),
        system_pods_s=5.0,
    )
    metadata_variable = "HILLS_HERALD"

    def notices(self, machine: Machine, options: NoticeOptions) -> NoticeSource:
        return HillsNotices(options.metadata_host or "herald.hills.example")


HILLS = HillsCloud()


@dataclass(frozen=True)
class NodeCloud:
    """A cloud, as seen from one of its nodes."""

    kind: str
    cloud: Cloud
    metadata_host: str
    preempt: Callable[[], None]
    """Announces that the machine ends 30 s later."""
    why: str
    """The notice about the node."""


@contextlib.asynccontextmanager
async def google() -> AsyncIterator[NodeCloud]:
    servers = MetadataServers("127.0.0.1", lambda: ("token", 60.0))
    await servers.start()
    metadata = Metadata({PREEMPTED: "FALSE", MAINTENANCE: "NONE"})
    try:
        host = await servers.add(metadata)
        yield NodeCloud("gke", GKE, host, lambda: metadata.set(PREEMPTED, "TRUE"), PREEMPTED_WHY)
    finally:
        await servers.stop()


@contextlib.asynccontextmanager
async def hills() -> AsyncIterator[NodeCloud]:
    announced: list[str] = []

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=announced[-1] if announced else "")

    app = web.Application()
    app.router.add_get("/storm", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    registry.register("hills", HILLS)
    try:
        host = f"127.0.0.1:{runner.addresses[0][1]}"
        yield NodeCloud("hills", HILLS, host, lambda: announced.append("30"), STORM)
    finally:
        registry.unregister("hills")
        await runner.cleanup()


CLOUDS = {"gke": google, "hills": hills}


@contextlib.asynccontextmanager
async def watched(source: NoticeSource) -> AsyncIterator[list[Notice | None]]:
    """Yields the list of notices from a source."""
    reported: list[Notice | None] = []
    task = asyncio.get_running_loop().create_task(source.watch(reported.append), name="source")
    try:
        yield reported
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def a_daemon(settings: NoticeSettings, configuration: ApiConfiguration) -> AsyncIterator[None]:
    stop = Stop()
    task = asyncio.get_running_loop().create_task(watch(settings, configuration, stop), name="notice")
    try:
        yield
    finally:
        stop.ask("test")
        async with asyncio.timeout(20.0):
            assert await task == 0
