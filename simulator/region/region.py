"""A region: its clusters, their ports, and a janitor that cleans up if the region is killed."""

import asyncio
import contextlib
import socket
import sys
import tempfile
import uuid
import zlib
from pathlib import Path
from types import TracebackType

from aiohttp import web

from runtime import children
from runtime.clock import Clock, SystemClock
from runtime.errors import UserError
from runtime.logs import logger
from simulator.accounts import Accounts
from simulator.cloud import tokens
from simulator.kubelet import janitor
from simulator.kubelet.addresses import Addresses
from simulator.kubelet.processes import Sweeper
from simulator.metadata_server import MetadataServers
from simulator.region.api import RegionApi
from simulator.region.cluster import Shared
from simulator.region.clusters import Clusters
from simulator.region.ports import LOOPBACK, Ports
from simulator.region.settings import RegionSettings

_JANITOR_S = 10.0


async def _janitor(mark: str, folder: str) -> asyncio.subprocess.Process:
    argv = [sys.executable, "-I", "-S", janitor.__file__, mark, folder]
    return await children.start(argv, stdin=asyncio.subprocess.PIPE)


async def _dismiss(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_JANITOR_S):
            await process.wait()
    except TimeoutError:
        await children.end(process, grace_s=0.0)


async def _address_of(name: str) -> str:
    if not name:
        return ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, family=socket.AF_INET)
    except OSError as error:
        raise UserError(
            f"Cannot resolve {name!r}, the address for all pods: {error.strerror}",
            "TRADEWIND_SIMULATOR_REGION_POD_IP takes an IPv4 address or a name of this machine",
        ) from None
    return str(found[0][4][0])


class Region:
    """A running region: `async with Region(settings) as region:`; afterwards none of its processes is left."""

    def __init__(self, settings: RegionSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.incarnation = uuid.uuid4().hex
        self._clock = clock or SystemClock()
        self._ports = Ports(settings, self._handle)
        self._cleaning = contextlib.AsyncExitStack()
        self._clusters: Clusters | None = None
        self._api: RegionApi | None = None
        self._log = logger(region=settings.region)

    @property
    def url(self) -> str:
        """URL at which others reach the region."""
        return self._ports.url

    @property
    def clusters(self) -> Clusters:
        assert self._clusters is not None  # set while the region serves
        return self._clusters

    async def __aenter__(self) -> "Region":
        async with contextlib.AsyncExitStack() as cleaning:
            folder = Path(self.settings.run_dir or tempfile.mkdtemp(prefix="sim-"))
            temporary = "" if self.settings.run_dir else str(folder)
            cleaning.push_async_callback(_dismiss, await _janitor(self.incarnation, temporary))
            metadata = MetadataServers(LOOPBACK, self._access_token)
            try:
                await metadata.start()
                cleaning.push_async_callback(metadata.stop)
                await self._ports.start()
            except OSError as error:
                raise UserError(
                    f"The region cannot listen on {self.settings.host}:{self.settings.port}: {error.strerror}",
                    "choose another port, or 0 for any that is free",
                ) from None
            cleaning.push_async_callback(self._ports.stop)
            second = 64 + zlib.crc32(self.settings.region.encode()) % 128
            addresses = Addresses(await _address_of(self.settings.pod_ip), second)
            accounts = Accounts({name.strip() for name in self.settings.roleless_accounts.split(",") if name.strip()})
            shared = Shared(
                self.settings, self.incarnation, self._clock, folder, metadata, addresses, Sweeper(), accounts
            )
            tasks = await cleaning.enter_async_context(asyncio.TaskGroup())
            self._clusters = Clusters(shared, self._ports, tasks)
            cleaning.push_async_callback(self._clusters.delete_all)
            self._api = RegionApi(self.settings.region, self.incarnation, self._clusters)
            self._cleaning = cleaning.pop_all()
        self._log.info("region_serves", url=self.url, folder=str(folder))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._cleaning.__aexit__(kind, error, trace)

    async def _handle(self, request: web.Request, cluster: str | None) -> web.StreamResponse:
        if self._api is None:
            return web.Response(status=503)
        return await self._api.handle(request, cluster)

    def _access_token(self) -> tuple[str, float]:
        lifetime_s = self.settings.token_s
        return tokens.issue(self.settings.secret, self._clock.wall_s(), lifetime_s), lifetime_s
