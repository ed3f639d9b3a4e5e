"""The durable state of the roles: small values by key, compare-and-set, watches that survive server restarts."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import nats.js.errors
from nats.js import api

from runtime import streams
from runtime.errors import BusRefused, BusUnavailable, Conflict
from runtime.follow import CaughtUp, StartedOver, Stored, Wanted, follow
from runtime.kv_headers import EXPECTED, OPERATION, TTL, is_gone
from runtime.link import Link

_FORGET_DELETED_AFTER_S = 3600
_MARKER_TEXT = b"If this key is gone, the data of this bucket was lost or purged."


@dataclass(frozen=True, slots=True)
class Entry:
    value: bytes
    revision: int


class Subscription:
    """A subscription or watch that can be ended. A second end has no effect."""

    def __init__(self, end: Callable[[], Awaitable[None]]) -> None:
        self._end = end
        self._ended = False

    async def unsubscribe(self) -> None:
        if not self._ended:
            self._ended = True
            await self._end()


Own = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]
"""Starts a named task that ends with the bus."""
OnChange = Callable[[str, Entry | None], None]
"""A key and its value, or None when it was deleted."""


class Bucket:
    def __init__(self, link: Link, name: str, own: Own, timeout_s: float) -> None:
        self._link = link
        self._name = name
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."
        self._own = own
        self._timeout_s = timeout_s

    async def made_at(self) -> datetime:
        """Returns when the server created the bucket. A new value means that the server has lost its data."""
        found = await self._link.call(
            f"looking at bucket {self._name}",
            lambda: streams.look(self._link, self._stream),
            timeout_s=self._timeout_s,
            harmless_twice=True,
        )
        if found.created is None:
            raise BusRefused(f"bucket {self._name}: the server does not report when it was created")
        return found.created

    async def origin(self, marker: str) -> str:
        """Returns an id of the bucket's data. It changes if the server loses the data, or somebody purges it.

        The marker is a key that is written once, and never again while it exists."""
        made_at = await self.made_at()
        while True:
            entry = await self.get(marker)
            if entry is not None:
                return f"{made_at.isoformat()}/{entry.revision}"
            with contextlib.suppress(Conflict):
                await self.create(marker, _MARKER_TEXT)

    async def get(self, key: str) -> Entry | None:
        entry, _revision = await self._last(key)
        return entry

    async def put(self, key: str, value: bytes) -> int:
        """Writes and returns the new revision. For keys with one writer. All writes may raise `TooLarge`."""
        return await self._write(key, value, {}, harmless_twice=True)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Writes only if the key still has this revision; 0 stands for a key that does not exist."""
        if revision == 0:
            return await self.create(key, value)
        return await self._write(key, value, {EXPECTED: str(revision)})

    async def create(self, key: str, value: bytes) -> int:
        """Writes only if the key does not exist."""
        entry, revision = await self._last(key)
        if entry is not None:
            raise Conflict(f"{key} exists already, at revision {revision}")
        return await self._write(key, value, {EXPECTED: str(revision)})

    async def delete(self, key: str) -> None:
        headers = {OPERATION: "PURGE", "Nats-Rollup": "sub", TTL: str(_FORGET_DELETED_AFTER_S)}
        await self._write(key, b"", headers, harmless_twice=True)

    async def entries(self, pattern: str = ">") -> dict[str, Entry]:
        """Returns all matching keys with their current values."""
        return await self._list(pattern, headers_only=False)

    async def revisions(self, pattern: str = ">") -> dict[str, int]:
        """Returns the revision of each matching key."""
        return {key: entry.revision for key, entry in (await self._list(pattern, headers_only=True)).items()}

    async def _list(self, pattern: str, *, headers_only: bool) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        wanted = replace(self._all_of(pattern), headers_only=headers_only)
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                contextlib.aclosing(follow(self._link, wanted)) as changes,
            ):
                async for change in changes:
                    match change:
                        case Stored():
                            key, entry = self._read(change)
                            if entry is not None:
                                found[key] = entry
                            else:
                                found.pop(key, None)
                        case StartedOver():
                            found.clear()
                        case CaughtUp():
                            break
        except TimeoutError:
            raise BusUnavailable(f"listing {pattern} of {self._name}: no answer in time") from None
        return found

    async def watch(self, pattern: str, on_change: OnChange) -> Subscription:
        """Calls `on_change` with the current values, then with each change, once and in order, until the bus ends.

        Returns after the current values. After an interruption the watch continues at its position; a key that the
        server has lost meanwhile counts as deleted.
        """
        caught_up = asyncio.Event()
        task = self._own(self._watch(pattern, on_change, caught_up), f"watch/{self._name}/{pattern}")
        try:
            async with asyncio.timeout(self._timeout_s):
                await caught_up.wait()
        except TimeoutError:
            task.cancel()
            raise BusUnavailable(f"watching {pattern} of {self._name}: no answer in time") from None

        async def end() -> None:
            task.cancel()

        return Subscription(end)

    async def _watch(self, pattern: str, on_change: OnChange, caught_up: asyncio.Event) -> None:
        known: set[str] = set()
        lost: set[str] = set()
        async with contextlib.aclosing(follow(self._link, self._all_of(pattern))) as changes:
            async for change in changes:
                match change:
                    case Stored():
                        key, entry = self._read(change)
                        lost.discard(key)
                        (known.discard if entry is None else known.add)(key)
                        on_change(key, entry)
                    case StartedOver():
                        lost = set(known)
                    case CaughtUp():
                        for key in sorted(lost):
                            known.discard(key)
                            on_change(key, None)
                        lost = set()
                        caught_up.set()

    def _all_of(self, pattern: str) -> Wanted:
        return Wanted(self._stream, f"{self._prefix}{pattern}", last_of_each_subject=True)

    def _read(self, stored: Stored) -> tuple[str, Entry | None]:
        key = stored.subject[len(self._prefix) :]
        gone = is_gone(stored.headers)
        return key, None if gone else Entry(stored.payload, stored.sequence)

    async def _last(self, key: str) -> tuple[Entry | None, int]:
        """Returns the value, if any, and the revision to compare with."""
        subject = f"{self._prefix}{key}"

        async def read() -> api.RawStreamMsg | None:
            try:
                return await self._link.jetstream.get_last_msg(self._stream, subject)
            except nats.js.errors.NotFoundError:
                return None

        last = await self._link.call(f"reading {key}", read, timeout_s=self._timeout_s, harmless_twice=True)
        if last is None:
            return None, 0
        revision = last.seq or 0
        headers = last.headers or {}
        if is_gone(headers):
            return None, revision
        return Entry(last.data or b"", revision), revision

    async def _write(self, key: str, value: bytes, headers: dict[str, str], harmless_twice: bool = False) -> int:
        subject = f"{self._prefix}{key}"
        ack = await self._link.call(
            f"writing {key}",
            lambda: self._link.jetstream.publish(subject, value, headers=dict(headers)),
            timeout_s=self._timeout_s,
            harmless_twice=harmless_twice,
        )
        return ack.seq


def config_of(name: str, max_bytes: int) -> api.StreamConfig:
    return api.StreamConfig(
        name=f"KV_{name}",
        subjects=[f"$KV.{name}.>"],
        storage=api.StorageType.FILE,
        max_msgs_per_subject=1,
        max_bytes=max_bytes,
        discard=api.DiscardPolicy.NEW,
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
        allow_msg_ttl=True,
        num_replicas=1,
    )


async def open_bucket(link: Link, name: str, max_bytes: int, own: Own, timeout_s: float) -> Bucket:
    await streams.ensure(link, config_of(name, max_bytes), timeout_s)
    return Bucket(link, name, own, timeout_s)
