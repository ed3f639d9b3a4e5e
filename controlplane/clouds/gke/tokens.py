"""Access tokens. They are cached until shortly before they expire and renewed early, so that no call waits.

A fetch blocks, so it runs in a thread. Callers that need a token meanwhile wait for the same fetch.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from controlplane.clouds.gke.failures import CallFailed, Code
from runtime.clock import Clock, SystemClock
from runtime.logs import logger

T = TypeVar("T")

RENEW_AHEAD_S = 240.0
SPARE_S = 10.0
"""Seconds before its expiry from which a token is no longer used, because a call takes time."""
RETRY_S = 1.0
"""Seconds before a failed early renewal is retried."""


@dataclass(frozen=True, slots=True)
class FetchedToken:
    text: str
    lifetime_s: float
    quota_project: str | None = None
    """The project that pays for calls; None: the account's own project pays."""

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers that identify the caller and the project that pays."""
        authorization = {"Authorization": f"Bearer {self.text}"}
        if self.quota_project is None:
            return authorization
        return authorization | {"X-Goog-User-Project": self.quota_project}


@dataclass(frozen=True, slots=True)
class _Cached:
    token: FetchedToken
    renew_at_s: float
    useless_at_s: float


class AccessTokens:
    def __init__(self, fetch: Callable[[], FetchedToken], clock: Clock | None = None) -> None:
        """`fetch` blocks for a bounded time, and raises `CallFailed`."""
        self._fetch = fetch
        self._clock = clock or SystemClock()
        self._cached: _Cached | None = None
        self._fetching: asyncio.Task[CallFailed | None] | None = None
        self._not_before_s = 0.0
        self._reported = ""
        self._log = logger()

    async def get(self) -> FetchedToken:
        """Raises `CallFailed`."""
        now_s = self._clock.monotonic_s()
        cached = self._cached
        if cached is not None and now_s < cached.useless_at_s:
            if now_s >= max(cached.renew_at_s, self._not_before_s):
                self._start()
            return cached.token
        failed = await asyncio.shield(self._start())
        if failed is not None:
            raise failed
        if self._cached is None:
            raise CallFailed(Code.UNAVAILABLE, "the access token was rejected as soon as it was issued")
        return self._cached.token

    async def spend(self, call: Callable[[FetchedToken], Awaitable[T]]) -> T:
        """Make a call; if Google rejects the token, repeat the call once with a new token."""
        token = await self.get()
        try:
            return await call(token)
        except CallFailed as failed:
            if failed.code is not Code.UNAUTHENTICATED:
                raise
        self._reject(token)
        return await call(await self.get())

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    def _reject(self, token: FetchedToken) -> None:
        if self._cached is not None and self._cached.token == token:
            self._cached = None

    def _start(self) -> "asyncio.Task[CallFailed | None]":
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._renew(), name="gke/access-token")
        return self._fetching

    async def _renew(self) -> CallFailed | None:
        try:
            token = await asyncio.to_thread(self._fetch)
        except CallFailed as failed:
            self._not_before_s = self._clock.monotonic_s() + RETRY_S
            if failed.message != self._reported:
                self._reported = failed.message
                self._log.warning("access_token_not_renewed", code=failed.code, why=failed.message)
            return failed
        now_s = self._clock.monotonic_s()
        self._reported = ""
        self._cached = _Cached(
            token,
            renew_at_s=now_s + token.lifetime_s - min(RENEW_AHEAD_S, token.lifetime_s * 0.4),
            useless_at_s=now_s + token.lifetime_s - min(SPARE_S, token.lifetime_s * 0.1),
        )
        return None
