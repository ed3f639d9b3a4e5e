"""Requests to a Kubernetes API server: paths and plain objects in, bytes of JSON out."""

import contextlib
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any

import aiohttp
import msgspec
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.config.config_exception import ConfigException

from messages.decoding import Undecodable, decode
from runtime.errors import Permanent, Temporary

CALL_S = 15.0
CONNECT_S = 5.0
LINE_LIMIT_BYTES = 32 * 1024 * 1024
BEARER = "BearerToken"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_TEMPORARY = (401, 408, 425, 429)
"""Statuses after which a retry may succeed: a token is renewed, a rate limit is over."""

Query = Mapping[str, str | int]


class ApiUnavailable(Temporary):
    """The server did not answer, or cannot answer now. The request may have been executed."""

    def __init__(self, why: str, code: int = 0, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{why} ({code})" if code else why)
        self.why = why
        self.code = code
        """HTTP status; 0 if there was no answer at all."""
        self.retry_after_s = retry_after_s


class WatchSilent(ApiUnavailable):
    """An open watch got nothing, not even the requested bookmarks."""


class ApiRefused(Permanent):
    """The server understood the request and refused it."""

    retry_after_s = 0.0

    def __init__(self, code: int, reason: str, message: str, causes: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes
        """Constants of Kubernetes, such as `NamespaceTerminating`."""


class NotFound(ApiRefused):
    pass


class AlreadyExists(ApiRefused):
    pass


class Expired(ApiRefused):
    """The resource version of the request is too old or unknown. List again."""


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: _Details | None = None


class KubernetesApi:
    def __init__(self, api: Any, call_s: float = CALL_S) -> None:
        """`api` is an ApiClient of the library."""
        self._api = api
        self._call_s = call_s

    async def get(self, path: str, query: Query | None = None) -> bytes:
        """Reads one object or a list."""
        return await self._call("GET", path, query=query)

    async def create(self, path: str, body: object) -> bytes:
        return await self._call("POST", path, body=body)

    async def patch(self, path: str, body: object, content_type: str = MERGE_PATCH) -> bytes:
        return await self._call("PATCH", path, body=body, content_type=content_type)

    async def apply(self, path: str, manifest: object, field_manager: str) -> bytes:
        """Creates the object or sets the fields of the manifest. Fields that others have set remain."""
        query = {"fieldManager": field_manager, "force": "true"}
        return await self._call("PATCH", path, query=query, body=manifest, content_type=APPLY_PATCH)

    async def delete(self, path: str, *, grace_s: int | None = None, uid: str = "") -> bytes:
        """Deletes an object. With `uid`, deletes only the object with that uid, not a later one of the same name."""
        options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid:
            options["preconditions"] = {"uid": uid}
        return await self._call("DELETE", path, body=options)

    async def watch(self, path: str, query: Query, silence_s: float) -> AsyncGenerator[bytes, None]:
        """Yields lines until the server ends the watch. Raises `WatchSilent` after `silence_s` without a line.

        A watch continues after its token has expired.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        with _translated(silence_s):
            response = await self._request("GET", path, {**query, "watch": "true"}, timeout=timeout)
            async with response:
                if response.status != 200:
                    raise _error_of(response.status, await response.read(), response.headers)
                _detect_dead_peer(response)
                try:
                    async for line in _lines(response.content):
                        yield line
                except aiohttp.SocketTimeoutError as error:
                    raise WatchSilent(f"a watch was silent for {silence_s:g} s") from error

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Sends a request, and repeats it once if its token has just expired."""
        try:
            return await self._call_once(method, path, query or {}, body, content_type)
        except ApiUnavailable as error:
            if error.code != 401:
                raise
        return await self._call_once(method, path, query or {}, body, content_type)

    async def _call_once(self, method: str, path: str, query: Query, body: object, content_type: str) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._call_s, sock_connect=CONNECT_S)
        with _translated(self._call_s):
            response = await self._request(method, path, query, body, content_type, timeout)
            async with response:
                content = await response.read()
            if not 200 <= response.status < 300:
                raise _error_of(response.status, content, response.headers)
            return content

    async def _request(
        self,
        method: str,
        path: str,
        query: Query,
        body: object = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        response: aiohttp.ClientResponse = await self._api.call_api(
            path,
            method,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=[BEARER],
            _preload_content=False,
            _request_timeout=timeout,
        )
        return response


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in content.iter_any():
        *whole, last = chunk.split(b"\n")
        for piece in whole:
            line = bytes(rest + piece)
            rest.clear()
            if line.strip():
                yield line
        rest += last
        if len(rest) > LINE_LIMIT_BYTES:
            raise ApiUnavailable(f"an event of a watch is longer than {LINE_LIMIT_BYTES} bytes")


def _detect_dead_peer(response: aiohttp.ClientResponse) -> None:
    """Turns on keepalive probes: a client sends nothing on a watch, so only they show that the server is gone."""
    transport = response.connection.transport if response.connection is not None else None
    connection = transport.get_extra_info("socket") if transport is not None else None
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


@contextlib.contextmanager
def _translated(within_s: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise ApiUnavailable(f"no answer within {within_s:g} s") from error
    except (aiohttp.ClientError, ConfigException, ApiException, OSError) as error:
        raise ApiUnavailable(f"no connection: {error or type(error).__name__}") from error


def _error_of(code: int, content: bytes, headers: Mapping[str, str]) -> ApiUnavailable | ApiRefused:
    try:
        status = decode(content, _Status)
    except Undecodable:
        status = _Status(message=" ".join(content.decode(errors="replace").split())[:300])
    message = status.message or f"HTTP status {code}"
    if code in _TEMPORARY or code >= 500:
        waits = headers.get("Retry-After", "")
        return ApiUnavailable(message, code, float(waits) if waits.isdecimal() else 0.0)
    causes = (status.details.causes if status.details is not None else None) or []
    return refusal(code, status.reason, message, frozenset(cause.reason for cause in causes))


def refusal(code: int, reason: str, message: str, causes: frozenset[str] = frozenset()) -> ApiRefused:
    if code == 404:
        return NotFound(code, reason, message, causes)
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists(code, reason, message, causes)
    if code == 410:
        return Expired(code, reason, message, causes)
    return ApiRefused(code, reason, message, causes)
