"""The only module of the agents that talks to kubernetes_asyncio: paths and plain objects in, bytes of JSON out.

The library brings the configuration (a pod's own, a kubeconfig with all its ways to log in) and the requests. Its typed
models are left alone: they take ten times as long as the answer itself. Tokens are asked for anew with every request,
since they expire; a watch that is running outlives the token that it was opened with.
"""

import contextlib
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import kubernetes_asyncio.client
import kubernetes_asyncio.config
import msgspec
import yaml
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.config.config_exception import ConfigException

from messages.decoding import Undecodable, decode
from runtime.errors import Permanent, Temporary, UserError
from runtime.paths import current_folder, placed

CALL_S = 15.0
CONNECT_S = 5.0
LINE_LIMIT_BYTES = 32 * 1024 * 1024
ACCOUNT_TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"
MERGE_PATCH = "application/merge-patch+json"

_library: Any = kubernetes_asyncio.client
_loading: Any = kubernetes_asyncio.config
_BEARER = "BearerToken"
_PASSING = (401, 408, 425, 429)
"""Refusals that may be none the next time: a token is renewed, a crowd disperses."""

Query = Mapping[str, str | int]


class ApiUnavailable(Temporary):
    """Nobody answered, or not yet: it may or may not have happened."""

    def __init__(self, why: str, code: int = 0, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.code = code
        """0 if there was no answer at all."""
        self.retry_after_s = retry_after_s


class Silent(ApiUnavailable):
    """A watch was opened, and nothing came of it for so long: not even the bookmarks that were asked for."""


class ApiRefused(Permanent):
    """The API server understood and said no."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class NotFound(ApiRefused):
    pass


class AlreadyExists(ApiRefused):
    pass


class Expired(ApiRefused):
    """What the request counts from is too long ago, or was never there: list again."""


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""


class KubernetesApi:
    def __init__(self, api: Any, call_s: float = CALL_S) -> None:
        self._api = api
        self._call_s = call_s

    async def get(self, path: str, query: Query | None = None) -> bytes:
        """Of one object, or of a list."""
        return await self._call("GET", path, query=query)

    async def create(self, path: str, body: object) -> bytes:
        return await self._call("POST", path, body=body)

    async def patch(self, path: str, body: object, content_type: str = MERGE_PATCH) -> bytes:
        return await self._call("PATCH", path, body=body, content_type=content_type)

    async def delete(self, path: str, *, grace_s: int | None = None, uid: str = "") -> bytes:
        """With `uid` only that very object, not a later one of its name."""
        options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid:
            options["preconditions"] = {"uid": uid}
        return await self._call("DELETE", path, body=options)

    async def watch(self, path: str, query: Query, silence_s: float) -> AsyncGenerator[bytes, None]:
        """Its lines as they come. Ends when the server ends it; a server that says nothing for so long is given up."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        with _translated():
            response = await self._request("GET", path, {**query, "watch": "true"}, timeout=timeout)
            async with response:
                if response.status != 200:
                    raise _refusal(response.status, await response.read(), response.headers)
                _notice_dead_peers(response)
                try:
                    async for line in _lines(response.content):
                        yield line
                except aiohttp.SocketTimeoutError as error:
                    raise Silent(f"nothing was heard of a watch for {silence_s:g} s") from error

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._call_s, sock_connect=CONNECT_S)
        with _translated():
            response = await self._request(method, path, query or {}, body, content_type, timeout)
            async with response:
                content = await response.read()
            if not 200 <= response.status < 300:
                raise _refusal(response.status, content, response.headers)
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
            auth_settings=[_BEARER],
            _preload_content=False,
            _request_timeout=timeout,
        )
        return response


@contextlib.asynccontextmanager
async def connected(configuration: Any, agent: str, call_s: float = CALL_S) -> AsyncIterator[KubernetesApi]:
    """`configuration` is one of those below. Nothing is sent yet."""
    # Newer interpreters want extensions in a certificate authority that those of clusters do not have.
    configuration.disable_strict_ssl_verification = True
    async with _library.ApiClient(configuration) as api:
        api.user_agent = agent
        yield KubernetesApi(api, call_s)


async def found_configuration(kubeconfig: str | None) -> Any:
    """Of the kubeconfig if there is one, else of the pod that this runs in."""
    return await from_kubeconfig(kubeconfig) if kubeconfig else from_pod()


async def from_kubeconfig(path: str) -> Any:
    configuration = _library.Configuration()
    if not _is_there(path):
        raise UserError(f"There is no kubeconfig at {path}", "correct KUBECONFIG")
    try:
        loader = await _loading.load_kube_config(path, client_configuration=configuration, persist_config=False)
    except (ConfigException, OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        why = str(error) or type(error).__name__
        raise UserError(f"The kubeconfig {path} cannot be used: {why}", "correct KUBECONFIG") from error
    # Asked again, the loader reads a token file again, and a login program's answer when that has expired.
    configuration.refresh_api_key_hook = loader.load_and_set
    return configuration


def _is_there(kubeconfig: str) -> bool:
    return any(placed(part, current_folder(), "KUBECONFIG").is_file() for part in kubeconfig.split(":"))


def from_pod() -> Any:
    configuration = _library.Configuration()
    try:
        _loading.load_incluster_config(client_configuration=configuration, try_refresh_token=False)
    except ConfigException as error:
        hint = "set KUBECONFIG, or run it in a pod whose service account is mounted"
        raise UserError(f"There is no way to the Kubernetes API: {error}", hint) from error

    def read_token(refreshed: Any) -> None:
        refreshed.api_key[_BEARER] = f"Bearer {Path(ACCOUNT_TOKEN_FILE).read_text().strip()}"

    configuration.refresh_api_key_hook = read_token
    return configuration


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


def _notice_dead_peers(response: aiohttp.ClientResponse) -> None:
    """Nothing is ever sent on a watch, so only probes of the system tell that the other end is no more."""
    transport = response.connection.transport if response.connection is not None else None
    connection = transport.get_extra_info("socket") if transport is not None else None
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


@contextlib.contextmanager
def _translated() -> Any:
    try:
        yield
    except TimeoutError as error:
        raise ApiUnavailable("the Kubernetes API did not answer in time") from error
    except (aiohttp.ClientError, ConfigException, ApiException, OSError) as error:
        raise ApiUnavailable(f"the Kubernetes API cannot be reached: {error or type(error).__name__}") from error


def _refusal(code: int, content: bytes, headers: Mapping[str, str]) -> ApiUnavailable | ApiRefused:
    try:
        status = decode(content, _Status)
    except Undecodable:
        status = _Status(message=" ".join(content.decode(errors="replace").split())[:300])
    message = status.message or f"HTTP status {code}"
    if code in _PASSING or code >= 500:
        waits = headers.get("Retry-After", "")
        return ApiUnavailable(f"{message} ({code})", code, float(waits) if waits.isdecimal() else 0.0)
    return refused(code, status.reason, message)


def refused(code: int, reason: str, message: str) -> ApiRefused:
    if code == 404:
        return NotFound(code, reason, message)
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists(code, reason, message)
    if code == 410:
        return Expired(code, reason, message)
    return ApiRefused(code, reason, message)
