"""A way to an API server whose address and tokens a test knows."""

from collections.abc import Awaitable, Callable
from typing import Any

import kubernetes_asyncio.client

Tokens = Callable[[], Awaitable[str]]

_library: Any = kubernetes_asyncio.client
_BEARER = "BearerToken"


def from_endpoint(endpoint: str, tokens: Tokens, authority_file: str | None = None) -> Any:
    configuration = _library.Configuration(host=endpoint.rstrip("/"))
    configuration.ssl_ca_cert = authority_file
    configuration.api_key[_BEARER] = ""

    async def ask_for_token(refreshed: Any) -> None:
        refreshed.api_key[_BEARER] = f"Bearer {await tokens()}"

    configuration.refresh_api_key_hook = ask_for_token
    return configuration
