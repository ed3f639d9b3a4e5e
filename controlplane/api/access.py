"""Access to the API: with a token for its holders, without one for programs of this machine, but not for web pages."""

import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from controlplane.api.responses import json_answer
from messages.api import Problem

OPEN_PATHS = ("/healthz",)
TOKEN_WRONG = "The API token is missing or wrong."

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
                hint = "send 'Authorization: Bearer <token>' with the master's TRADEWIND_API_TOKEN"
                return json_answer(Problem(TOKEN_WRONG, hint), HTTPStatus.UNAUTHORIZED)
        elif not _is_local_program(request):
            hint = "send requests to http://127.0.0.1, or start the master with a token"
            problem = Problem("Without a token the API answers only programs on this machine.", hint)
            return json_answer(problem, HTTPStatus.FORBIDDEN)
        return await handler(request)

    return check


def _is_local_program(request: web.Request) -> bool:
    """True unless a web page in a browser sends the request: that has another origin or another host name."""
    origin = request.headers.get("Origin")
    return _names_loopback(f"//{request.headers.get('Host', '')}") and (origin is None or _names_loopback(origin))


def _names_loopback(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
