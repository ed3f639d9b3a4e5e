"""A master's API in one function, on a free port."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import msgspec
from aiohttp import web

from runtime.children import free_port


@asynccontextmanager
async def answering(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[dict[str, str]]:
    """Serves the answers; gives the environment for commands."""
    app = web.Application()
    app.add_routes([web.route("*", "/{path:.*}", answer)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield {"TRADEWIND_API_URL": f"http://127.0.0.1:{port}"}
    finally:
        await runner.cleanup()


def as_json(value: object, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
