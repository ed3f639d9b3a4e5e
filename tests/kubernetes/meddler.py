"""A proxy between a client and any API server, which adds faults of networks and servers."""

import asyncio
import json
from types import TracebackType
from typing import Any

import aiohttp
from aiohttp import web

GONE = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old resource version"}
_PASSED_ON = ("Content-Type", "Accept", "User-Agent")


class Meddler:
    def __init__(self, api: Any) -> None:
        """`api`: the library's client, as an administrator."""
        self.url = ""
        self.requests: list[str] = []
        """Methods and paths, watches as WATCH."""
        self._api = api
        self._is_cut = False
        self._is_blind = False
        self._open: list[web.Request] = []
        self._watches: set[asyncio.Event] = set()
        self._runner = web.AppRunner(self._app(), shutdown_timeout=0.1)

    async def __aenter__(self) -> "Meddler":
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        await self._runner.cleanup()

    def cut(self) -> None:
        """All connections break, and new ones too."""
        self._is_cut = True
        for request in tuple(self._open):
            if isinstance(request.transport, asyncio.Transport):
                request.transport.abort()

    def mend(self) -> None:
        self._is_cut = False

    def blind(self) -> None:
        """Stops the events of watches."""
        self._is_blind = True

    def expire(self) -> None:
        """The server has forgotten what the watches have missed."""
        self._is_blind = False
        for expired in self._watches:
            expired.set()

    def count(self, request: str) -> int:
        """How many requests began like this."""
        return sum(made.startswith(request) for made in self.requests)

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        is_watch = "watch" in request.query
        self.requests.append(f"{'WATCH' if is_watch else request.method} {request.path}")
        if self._is_cut:
            assert isinstance(request.transport, asyncio.Transport)
            request.transport.abort()
            return web.Response(status=503)
        self._open.append(request)
        try:
            async with await self._ask(request) as answer:
                if is_watch and answer.status == 200:
                    return await self._stream(request, answer)
                content = await answer.read()
                return web.Response(body=content, status=answer.status, content_type=answer.content_type)
        finally:
            self._open.remove(request)

    async def _ask(self, request: web.Request) -> aiohttp.ClientResponse:
        configuration = self._api.configuration
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        login = (await configuration.auth_settings()).get("BearerToken")
        if login is not None:
            headers["Authorization"] = login["value"]
        session: aiohttp.ClientSession = self._api.rest_client.pool_manager
        timeout = aiohttp.ClientTimeout(total=None)
        url = configuration.host + request.path_qs
        return await session.request(
            request.method, url, data=await request.read() or None, headers=headers, timeout=timeout
        )

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        expired = asyncio.Event()
        self._watches.add(expired)
        try:
            async with asyncio.TaskGroup() as tasks:
                passing = tasks.create_task(self._pass_on(answer, response), name="pass-on")
                expiring = tasks.create_task(expired.wait(), name="expire")
                await asyncio.wait({passing, expiring}, return_when=asyncio.FIRST_COMPLETED)
                passing.cancel()
                expiring.cancel()
            if expired.is_set():
                line = json.dumps({"type": "ERROR", "object": GONE})
                await response.write(line.encode() + b"\n")
            await response.write_eof()
        except* ConnectionError:
            pass
        finally:
            self._watches.discard(expired)
        return response

    async def _pass_on(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        async for line in answer.content:
            if not self._is_blind:
                await response.write(line)
