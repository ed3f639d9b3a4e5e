"""The whole cloud: core, market, regions and the two ports that it serves. Wiring, no logic."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web

from runtime.clock import Clock, SystemClock
from runtime.errors import UserError
from runtime.role import RoleLoop
from simulator.cloud.calls import CallLog
from simulator.cloud.compute import ComputeApi
from simulator.cloud.control import ControlApi
from simulator.cloud.credentials import TokenEndpoint, service_account, write_key_file
from simulator.cloud.gate import Gate
from simulator.cloud.gke.server import GkeServer
from simulator.cloud.gke.service import GkeService
from simulator.cloud.journal import Journal
from simulator.cloud.model.decide import decide
from simulator.cloud.model.effects import Effect
from simulator.cloud.model.events import Event, MarketMoved, Tick
from simulator.cloud.model.state import Cloud
from simulator.cloud.regions import RegionClient, watch
from simulator.cloud.settings import (
    CloudSettings,
    items,
    markets_of,
    project_names,
    quota_limits,
    region_urls,
    rules_of,
    trace_files,
    weather_of,
)
from simulator.cloud.shell import CloudService, CloudShell
from simulator.market import feed
from simulator.market.markets import Change
from simulator.market.traces import read_trace

STOP_S = 0.5
EVERYWHERE = ("0.0.0.0", "::", "")


@dataclass(frozen=True, slots=True)
class Serving:
    grpc_address: str
    url: str
    """URL at which others reach the HTTP port."""


@contextlib.asynccontextmanager
async def serve_cloud(settings: CloudSettings, clock: Clock | None = None) -> AsyncIterator[Serving]:
    """Serves the cloud until the end of the block, which must end in the task that entered it."""
    clock = clock or SystemClock()
    changes = _changes(settings)
    urls = region_urls(settings)
    roleless = frozenset(items(settings.roleless_accounts))
    state = Cloud(rules=rules_of(settings), quotas=quota_limits(settings), roleless=roleless)
    key_file = Path(settings.write_credentials) if settings.write_credentials else None
    projects = project_names(settings)
    account = await asyncio.to_thread(service_account, projects[0], key_file) if key_file else None
    gate = Gate(clock, projects, settings.secret, settings.auth, settings.calls_per_minute)
    calls = CallLog(clock)
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        regions = {name: RegionClient(name, url, settings.token_s, session) for name, url in urls.items()}
        shell = CloudShell(regions, clock)
        loop: RoleLoop[Cloud, Event, Effect] = RoleLoop("cloud", state, decide, shell, Tick, clock, [Journal()])
        service = CloudService(loop, shell, clock)
        app = web.Application()
        app.add_routes(ControlApi(service, gate, calls, regions, settings.speed).routes())
        app.add_routes(ComputeApi(service, gate, calls).routes())
        app.add_routes(TokenEndpoint(account, settings.secret, settings.token_s, clock, calls).routes())
        work = {
            "cloud/loop": loop.run(),
            "cloud/market": _play(changes, settings.speed, clock, loop),
            **{
                f"cloud/{name}": watch(each, settings.region_poll_s, clock, loop.post) for name, each in regions.items()
            },
        }
        running = [tasks.create_task(each, name=name) for name, each in work.items()]
        try:
            async with contextlib.AsyncExitStack() as ports:
                http_port = await _listen(ports, app, settings)
                gke = await GkeServer.start(GkeService(service), gate, calls, settings.host, settings.grpc_port)
                ports.push_async_callback(gke.stop)
                host = "127.0.0.1" if settings.host in EVERYWHERE else settings.host
                url = settings.public_url.rstrip("/") or f"http://{host}:{http_port}"
                if account is not None and key_file is not None:
                    write_key_file(account, projects[0], f"{url}/token", key_file)
                yield Serving(f"{host}:{gke.port}", url)
        finally:
            for task in running:
                task.cancel()


def _changes(settings: CloudSettings) -> Iterator[Change]:
    traces = [read_trace(each.path, each.market) for each in trace_files(settings)]
    generated = markets_of(settings, list(region_urls(settings))) if settings.generate else []
    return feed.merged(traces, generated, weather_of(settings), settings.seed)


async def _play(changes: Iterator[Change], speed: float, clock: Clock, loop: RoleLoop[Cloud, Event, Effect]) -> None:
    def tell(change: Change) -> None:
        loop.post(MarketMoved(clock.monotonic_s(), change))

    await feed.play(changes, clock.monotonic_s(), speed, clock, tell)


async def _listen(ports: contextlib.AsyncExitStack, app: web.Application, settings: CloudSettings) -> int:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_S)
    await runner.setup()
    ports.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, settings.host, settings.http_port).start()
    except OSError as error:
        where = f"{settings.host}:{settings.http_port}"
        hint = "give --http-port a free port"
        raise UserError(f"The cloud cannot listen on {where}: {error.strerror}", hint) from None
    port: int = runner.addresses[0][1]
    return port
