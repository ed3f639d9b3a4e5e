"""The ports of a region: one for everything, and one for each cluster that serves its API without a path prefix."""

import contextlib
from collections.abc import Awaitable, Callable

from aiohttp import web

from simulator.region.settings import RegionSettings

LOOPBACK = "127.0.0.1"
_EVERYWHERE = ("0.0.0.0", "")
_BODY_BYTES = 4 * 1024 * 1024
_STOP_S = 0.5

Handler = Callable[[web.Request, str | None], Awaitable[web.StreamResponse]]
"""Handles a request; the second argument is the cluster if the request came in at its own port."""


class Ports:
    def __init__(self, settings: RegionSettings, handler: Handler) -> None:
        self._settings = settings
        self._handler = handler
        self._port = 0
        self._cluster_ports: dict[str, int] = {}
        self._clusters: dict[int, str] = {}
        self._sites: dict[str, web.TCPSite] = {}
        app = web.Application(client_max_size=_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_STOP_S)

    async def start(self) -> None:
        await self._runner.setup()
        self._port, _ = await self._listen(self._settings.port)

    async def stop(self) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """URL at which others reach the region."""
        return self._settings.advertise_url.rstrip("/") or f"http://{self._host}:{self._port}"

    @property
    def inner_url(self) -> str:
        """URL at which the region's own pods reach it."""
        return f"http://{self._host}:{self._port}"

    def address_of(self, cluster: str) -> str:
        """Host and port at which others reach the cluster's own port."""
        advertised = self.url.partition("://")[2].partition("/")[0].rpartition(":")[0]
        return f"{advertised or self._host}:{self._cluster_ports[cluster]}"

    async def open(self, cluster: str) -> None:
        port, site = await self._listen(0)
        self._cluster_ports[cluster] = port
        self._clusters[port] = cluster
        self._sites[cluster] = site

    async def close(self, cluster: str) -> None:
        self._clusters.pop(self._cluster_ports.pop(cluster), None)
        with contextlib.suppress(RuntimeError):
            await self._sites.pop(cluster).stop()

    async def _listen(self, port: int) -> tuple[int, web.TCPSite]:
        known = set(self._runner.addresses)
        site = web.TCPSite(self._runner, self._settings.host or "0.0.0.0", port)
        await site.start()
        taken: int = next(address for address in self._runner.addresses if address not in known)[1]
        return taken, site

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        name = request.transport.get_extra_info("sockname") if request.transport is not None else None
        return await self._handler(request, self._clusters.get(name[1]) if name else None)

    @property
    def _host(self) -> str:
        return LOOPBACK if self._settings.host in _EVERYWHERE else self._settings.host
