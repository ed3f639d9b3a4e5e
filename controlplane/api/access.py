"""Who may use the API: with a token, whoever has it; without one, programs of this machine but no web page."""

import hmac
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from controlplane.master.settings import is_loopback
from messages.api import Problem

OPEN_PATHS = ("/healthz",)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guard(token: str) -> Middleware:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in OPEN_PATHS:
            return await handler(request)
        if token:
            given = request.headers.get("Authorization", "").encode(errors="replace")
            if not hmac.compare_digest(given, expected):
                hint = "send 'Authorization: Bearer <token>' with the token the master was started with"
                return _refusal(HTTPStatus.UNAUTHORIZED, "The API needs the right token.", hint)
        elif not _is_local_program(request):
            hint = "ask at http://127.0.0.1, or start the master with a token"
            return _refusal(
                HTTPStatus.FORBIDDEN, "Without a token the API answers programs of this machine only.", hint
            )
        return await handler(request)

    return check


def _is_local_program(request: web.Request) -> bool:
    """A page in a browser of this machine is not one: it would come with another origin, or by another name."""
    origin = request.headers.get("Origin")
    return _names_loopback(f"//{request.headers.get('Host', '')}") and (origin is None or _names_loopback(origin))


def _names_loopback(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _refusal(status: HTTPStatus, error: str, hint: str) -> web.Response:
    return web.Response(body=msgspec.json.encode(Problem(error, hint)), status=status, content_type="application/json")
