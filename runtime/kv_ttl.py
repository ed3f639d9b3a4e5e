"""A key whose value expires unless it is written again.

nats-py's key-value calls cannot renew a key: their updates have no time to live, so an updated key would never expire.
This module publishes writes with both headers: the revision to compare with, and the time to live. An expired key
leaves nothing, or a marker with its own revision if the bucket is configured for that.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import nats.js.errors
from nats.js import api

from runtime.follow import CaughtUp, StartedOver, Stored, Wanted, follow
from runtime.kv_headers import EXPECTED, OPERATION, TTL, is_gone
from runtime.link import Link

_TOMBSTONE_S = 60


@dataclass(frozen=True, slots=True)
class Version:
    revision: int
    """The revision to compare with at the next write; 0 if there is none."""
    value: bytes | None
    """None if expired, removed, or never written."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The server has lost its data: revisions restart."""


class ExpiringKey:
    def __init__(self, link: Link, bucket: str, key: str) -> None:
        self.name = f"{bucket}/{key}"
        self._link = link
        self._stream = f"KV_{bucket}"
        self._subject = f"$KV.{bucket}.{key}"

    async def read(self, timeout_s: float) -> Version:
        async def ask() -> api.RawStreamMsg | None:
            try:
                return await self._link.jetstream.get_last_msg(self._stream, self._subject)
            except nats.js.errors.NotFoundError:
                return None

        last = await self._link.call(f"reading {self.name}", ask, timeout_s=timeout_s, harmless_twice=True)
        if last is None:
            return Version(0, None)
        return _version(last.seq or 0, last.data or b"", last.headers or {})

    async def write(self, value: bytes, *, revision: int, ttl_s: int, timeout_s: float) -> int:
        """Writes and returns the new revision. Raises `Conflict` for another revision, `BusUnavailable` if unknown."""
        return await self._publish(value, {EXPECTED: str(revision), TTL: str(ttl_s)}, timeout_s)

    async def remove(self, *, revision: int, timeout_s: float) -> None:
        headers = {EXPECTED: str(revision), TTL: str(_TOMBSTONE_S), OPERATION: "DEL"}
        await self._publish(b"", headers, timeout_s)

    async def follow(self) -> AsyncGenerator[Version | Forgotten, None]:
        """Yields the current version, then each change; an expiry only if the bucket has markers. Never ends."""
        wanted = Wanted(self._stream, self._subject, last_of_each_subject=True)
        async with aclosing(follow(self._link, wanted)) as changes:
            async for change in changes:
                match change:
                    case Stored():
                        yield _version(change.sequence, change.payload, change.headers)
                    case StartedOver():
                        yield Forgotten()
                    case CaughtUp():
                        pass

    async def _publish(self, value: bytes, headers: dict[str, str], timeout_s: float) -> int:
        ack = await self._link.call(
            f"writing {self.name}",
            lambda: self._link.jetstream.publish(self._subject, value, headers=dict(headers)),
            timeout_s=timeout_s,
        )
        return ack.seq


def _version(revision: int, value: bytes, headers: dict[str, str]) -> Version:
    gone = is_gone(headers)
    return Version(revision, None if gone else value)
