"""One key whose value lives only for as long as it is written again.

nats-py's own key-value calls cannot renew: their updates take no time to live, and a key that was updated once would
live for ever. So writes are published here with both headers, the revision to compare with and the time to live. A key
that has expired leaves nothing behind, or a marker with a revision of its own where the bucket is set up for that.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import nats.js.errors
from nats.js import api

from runtime.follow import CaughtUp, StartedOver, Stored, Wanted, follow
from runtime.link import Link

_OPERATION = "KV-Operation"
_MARKER = "Nats-Marker-Reason"
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_TTL = "Nats-TTL"
_TOMBSTONE_S = 60


@dataclass(frozen=True, slots=True)
class Version:
    revision: int
    """To compare with at the next write; 0 where there is nothing."""
    value: bytes | None
    """None: expired, removed, or never written."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The server has lost what it had: revisions begin anew."""


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
        """The new revision; `Conflict` if the key had another one, `BusUnavailable` if nobody knows."""
        return await self._publish(value, {_EXPECTED: str(revision), _TTL: str(ttl_s)}, timeout_s)

    async def remove(self, *, revision: int, timeout_s: float) -> None:
        headers = {_EXPECTED: str(revision), _TTL: str(_TOMBSTONE_S), _OPERATION: "DEL"}
        await self._publish(b"", headers, timeout_s)

    async def follow(self) -> AsyncGenerator[Version | Forgotten, None]:
        """What is there, then every change; expiry only where the bucket keeps markers. Never ends by itself."""
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
    gone = _OPERATION in headers or _MARKER in headers
    return Version(revision, None if gone else value)
