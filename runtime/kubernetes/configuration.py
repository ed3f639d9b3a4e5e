"""Ways to reach an API server: the pod's own account, a kubeconfig, or an address with tokens."""

import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes_asyncio.client
import kubernetes_asyncio.config
import yaml
from kubernetes_asyncio.config.config_exception import ConfigException

from runtime.errors import UserError
from runtime.kubernetes.client import BEARER, CALL_S, ApiUnavailable, KubernetesApi
from runtime.paths import current_folder, placed

ACCOUNT_TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"

_library: Any = kubernetes_asyncio.client
_loading: Any = kubernetes_asyncio.config

Tokens = Callable[[], Awaitable[str]]
"""Returns a valid token."""


@dataclass(frozen=True, slots=True)
class ApiConfiguration:
    """An API server and how to log in to it. Tokens expire, so every request gets a fresh one."""

    library: Any
    """The configuration object of kubernetes_asyncio."""
    ca_certificate: str = ""
    """The server's certificate authority in PEM, if it is not in a file."""


@contextlib.asynccontextmanager
async def connected(
    configuration: ApiConfiguration, user_agent: str, call_s: float = CALL_S
) -> AsyncIterator[KubernetesApi]:
    """Opens a client, without a request. Raises `ApiUnavailable` if the certificate authority is unreadable."""
    try:
        api = _api_client(configuration)
    except ssl.SSLError as error:
        raise ApiUnavailable(f"the certificate authority cannot be read: {error}") from None
    async with api:
        api.user_agent = user_agent
        yield KubernetesApi(api, call_s)


async def from_pod_or_kubeconfig(kubeconfig: str | None) -> ApiConfiguration:
    """Reads the kubeconfig if one is given, else the account of the pod that this process runs in."""
    return await from_kubeconfig(kubeconfig) if kubeconfig else from_pod()


async def from_kubeconfig(path: str) -> ApiConfiguration:
    configuration = _library.Configuration()
    if not _is_there(path):
        raise UserError(f"There is no kubeconfig at {path}", "correct KUBECONFIG")
    try:
        loader = await _loading.load_kube_config(path, client_configuration=configuration, persist_config=False)
    except (ConfigException, OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        why = str(error) or type(error).__name__
        raise UserError(f"The kubeconfig {path} cannot be used: {why}", "correct KUBECONFIG") from error
    # The loader reads token files again, and runs login programs again when a token has expired.
    configuration.refresh_api_key_hook = loader.load_and_set
    return ApiConfiguration(configuration)


def from_pod() -> ApiConfiguration:
    configuration = _library.Configuration()
    try:
        _loading.load_incluster_config(client_configuration=configuration, try_refresh_token=False)
    except ConfigException as error:
        hint = "set KUBECONFIG, or run in a pod with a mounted service account"
        raise UserError(f"Cannot find the Kubernetes API: {error}", hint) from error

    def read_token(refreshed: Any) -> None:
        refreshed.api_key[BEARER] = f"Bearer {Path(ACCOUNT_TOKEN_FILE).read_text().strip()}"

    configuration.refresh_api_key_hook = read_token
    return ApiConfiguration(configuration)


def from_endpoint(endpoint: str, tokens: Tokens, ca_certificate: str = "") -> ApiConfiguration:
    """Configures a client for an address. Without a certificate, trusts the authorities of this machine."""
    configuration = _library.Configuration(host=endpoint.rstrip("/"))
    configuration.api_key[BEARER] = ""

    async def refresh_token(refreshed: Any) -> None:
        refreshed.api_key[BEARER] = f"Bearer {await tokens()}"

    configuration.refresh_api_key_hook = refresh_token
    return ApiConfiguration(configuration, ca_certificate)


def _api_client(configuration: ApiConfiguration) -> Any:
    library = configuration.library
    # Newer interpreters require extensions that the certificate authorities of clusters lack.
    library.disable_strict_ssl_verification = True
    if not configuration.ca_certificate:
        return _library.ApiClient(library)
    # The library reads the authority from a file, only while it builds the client.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(configuration.ca_certificate)
        file.flush()
        library.ssl_ca_cert = file.name
        return _library.ApiClient(library)


def _is_there(kubeconfig: str) -> bool:
    return any(placed(part, current_folder(), "KUBECONFIG").is_file() for part in kubeconfig.split(":"))
