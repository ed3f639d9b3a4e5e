"""Access tokens: kept until shortly before they expire, renewed ahead of time so that nothing waits for one.

Getting one blocks, so it is done in a thread; whoever needs one at that moment waits for the same.
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
"""Less than that is as good as expired: the token has to survive its journey."""
AGAIN_S = 1.0
"""How soon a renewal ahead of time that failed is tried again."""


@dataclass(frozen=True, slots=True)
class FetchedToken:
    text: str
    lifetime_s: float
    quota_project: str | None = None
    """The project that pays for calls; None where the account's own project does."""

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers that identify the caller and the project that pays."""
        authorization = {"Authorization": f"Bearer {self.text}"}
        if self.quota_project is None:
            return authorization
        return authorization | {"X-Goog-User-Project": self.quota_project}


@dataclass(frozen=True, slots=True)
class _Kept:
    token: FetchedToken
    renew_at_s: float
    useless_at_s: float


class AccessTokens:
    def __init__(self, fetch: Callable[[], FetchedToken], clock: Clock | None = None) -> None:
        """`fetch` blocks for a bounded time, and raises `CallFailed`."""
        self._fetch = fetch
        self._clock = clock or SystemClock()
        self._kept: _Kept | None = None
        self._fetching: asyncio.Task[CallFailed | None] | None = None
        self._not_before_s = 0.0
        self._told = ""
        self._log = logger()

    async def get(self) -> FetchedToken:
        """Raises `CallFailed`."""
        now_s = self._clock.monotonic_s()
        kept = self._kept
        if kept is not None and now_s < kept.useless_at_s:
            if now_s >= max(kept.renew_at_s, self._not_before_s):
                self._start()
            return kept.token
        failed = await asyncio.shield(self._start())
        if failed is not None:
            raise failed
        if self._kept is None:
            raise CallFailed(Code.UNAVAILABLE, "the access token was rejected as soon as it was issued")
        return self._kept.token

    async def spend(self, call: Callable[[FetchedToken], Awaitable[T]]) -> T:
        """A call whose token is refused is made again with a new one, once: nothing was done by the first."""
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
        if self._kept is not None and self._kept.token == token:
            self._kept = None

    def _start(self) -> "asyncio.Task[CallFailed | None]":
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._renew(), name="gke/access-token")
        return self._fetching

    async def _renew(self) -> CallFailed | None:
        try:
            token = await asyncio.to_thread(self._fetch)
        except CallFailed as failed:
            self._not_before_s = self._clock.monotonic_s() + AGAIN_S
            if failed.message != self._told:
                self._told = failed.message
                self._log.warning("access_token_not_renewed", code=failed.code, why=failed.message)
            return failed
        now_s = self._clock.monotonic_s()
        self._told = ""
        self._kept = _Kept(
            token,
            renew_at_s=now_s + token.lifetime_s - min(RENEW_AHEAD_S, token.lifetime_s * 0.4),
            useless_at_s=now_s + token.lifetime_s - min(SPARE_S, token.lifetime_s * 0.1),
        )
        return None
