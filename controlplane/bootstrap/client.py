"""The few calls to a Kubernetes API that the bootstrap makes, each with a token asked for just then: they expire."""

import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from kubernetes_asyncio import client as library

from controlplane.bootstrap.answers import Complaint
from controlplane.bootstrap.names import Manifest
from controlplane.clouds.interface import KubernetesAccess
from messages.decoding import Undecodable, decode
from runtime.errors import TradewindError

FIELD_MANAGER = "tradewind-bootstrap"
_APPLY = "application/apply-patch+yaml"
_ANSWERS = {200: "object", 201: "object", 202: "object"}
_PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "Secret": "secrets",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Deployment": "deployments",
    "DaemonSet": "daemonsets",
}

Tokens = Callable[[], Awaitable[str]]


class CallFailed(TradewindError):
    def __init__(self, complaint: Complaint) -> None:
        super().__init__(complaint.message)
        self.complaint = complaint


class KubernetesClient:
    def __init__(self, api: Any, tokens: Tokens | None, call_s: float) -> None:
        """`api` is the library's ApiClient; without `tokens` it authenticates by itself."""
        self._api = api
        self._tokens = tokens
        self._call_s = call_s

    async def find(self, manifest: Manifest) -> Manifest | None:
        """The object of that kind and name as it is now."""
        try:
            return await self._call("GET", path_of(manifest))
        except CallFailed as failed:
            if failed.complaint.status == 404:
                return None
            raise

    async def pods(self, namespace: str, labels: str) -> Manifest:
        """A list of those that have these labels (`a=b,c=d`)."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        return await self._call("GET", path, query=[("labelSelector", labels)])

    async def apply(self, manifest: Manifest) -> None:
        """What is in the manifest becomes so; what others have set beside it stays."""
        query = [("fieldManager", FIELD_MANAGER), ("force", "true")]
        await self._call("PATCH", path_of(manifest), query=query, body=manifest, content_type=_APPLY)

    async def _call(self, method: str, path: str, **what: Any) -> Manifest:
        """A token may expire on its way: a call that is refused for it is made once more."""
        try:
            return await self._call_once(method, path, **what)
        except CallFailed as failed:
            if failed.complaint.status != 401 or self._tokens is None:
                raise
        return await self._call_once(method, path, **what)

    async def _call_once(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        if self._tokens is not None:
            headers["Authorization"] = f"Bearer {await self._tokens()}"
        try:
            answer: Manifest = await self._api.call_api(
                path,
                method,
                query_params=query or [],
                header_params=headers,
                body=body,
                response_types_map=_ANSWERS,
                auth_settings=["BearerToken"] if self._tokens is None else [],
                _return_http_data_only=True,
                _request_timeout=self._call_s,
            )
        except library.ApiException as error:
            raise CallFailed(_complaint(error.status or 0, error.body or error.reason or "")) from None
        except TimeoutError:
            raise CallFailed(Complaint(0, f"no answer within {self._call_s:g} s")) from None
        except (aiohttp.ClientError, OSError) as error:
            raise CallFailed(Complaint(0, str(error) or type(error).__name__)) from None
        return answer


@contextlib.asynccontextmanager
async def connected(access: KubernetesAccess, tokens: Tokens, call_s: float) -> AsyncIterator[KubernetesClient]:
    try:
        api = _api_client(access)
    except ssl.SSLError as error:
        raise CallFailed(Complaint(0, f"its certificate authority cannot be read: {error}")) from None
    async with api:
        yield KubernetesClient(api, tokens, call_s)


def path_of(manifest: Manifest) -> str:
    version, fields = manifest["apiVersion"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = f"/namespaces/{fields['namespace']}" if fields.get("namespace") else ""
    return f"{root}{namespace}/{_PLURALS[manifest['kind']]}/{quote(fields['name'], safe='')}"


def _api_client(access: KubernetesAccess) -> Any:
    untyped: Any = library
    configuration = untyped.Configuration(host=access.endpoint.rstrip("/"))
    # Newer interpreters want extensions in a certificate authority that those of clusters do not have.
    configuration.disable_strict_ssl_verification = True
    if not access.ca_certificate:
        return untyped.ApiClient(configuration)
    # The library reads the authority from a file only, and only here.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(access.ca_certificate)
        file.flush()
        configuration.ssl_ca_cert = file.name
        return untyped.ApiClient(configuration)


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    """The part that we read of the Status that Kubernetes answers with."""

    message: str = ""
    details: _Details | None = None


def _complaint(status: int, body: bytes | str) -> Complaint:
    try:
        told = decode(body, _Status)
    except Undecodable:
        text = body if isinstance(body, str) else body.decode(errors="replace")
        return Complaint(status, " ".join(text.split())[:300] or f"HTTP status {status}")
    causes = (told.details.causes if told.details is not None else None) or []
    return Complaint(status, told.message or f"HTTP status {status}", frozenset(cause.reason for cause in causes))
