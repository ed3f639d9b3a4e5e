"""Lists the objects of one kind, then watches them until cancelled, without polling.

A watch resumes where the last one ended. If the server no longer knows that version (410), is silent, or refuses for
another reason, the watcher lists all objects again and compares them, so that it also reports deletions in between. It
does the same every ten minutes.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec

from messages.decoding import Decoder, Undecodable
from runtime.clock import Clock
from runtime.kubernetes.client import (
    ApiRefused,
    ApiUnavailable,
    Expired,
    KubernetesApi,
    Query,
    WatchSilent,
    refusal,
)
from runtime.kubernetes.objects import AnyObject, ErrorStatus, Listing, Object, WatchEvent
from runtime.logs import Once, WhyLog, logger
from runtime.retry import Backoff

T = TypeVar("T", bound=Object)

_listing: Decoder[Listing] = Decoder(Listing)
_event: Decoder[WatchEvent] = Decoder(WatchEvent)
_bookmark: Decoder[AnyObject] = Decoder(AnyObject)
_error: Decoder[ErrorStatus] = Decoder(ErrorStatus)


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A new or changed object."""

    object: T


@dataclass(frozen=True, slots=True)
class Vanished(Generic[T]):
    """A deleted object, as last seen."""

    object: T


Change = Seen[T] | Vanished[T]


class View(Generic[T]):
    """All known objects by name. An object with a known name and a new uid replaces one that has vanished."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}

    @property
    def objects(self) -> Mapping[str, T]:
        return MappingProxyType(self._objects)

    def replace(self, listed: Iterable[T]) -> list[Change[T]]:
        """Replaces all objects. Known objects that are not listed have vanished."""
        there = {found.metadata.name: found for found in listed}
        changes: list[Change[T]] = [
            Vanished(known) for name, known in self._objects.items() if not _is_same(known, there.get(name))
        ]
        changes += [Seen(found) for name, found in there.items() if self._objects.get(name) != found]
        self._objects = there
        return changes

    def see(self, found: T) -> list[Change[T]]:
        known = self._objects.get(found.metadata.name)
        self._objects[found.metadata.name] = found
        if known is None or _is_same(known, found):
            return [Seen(found)]
        return [Vanished(known), Seen(found)]

    def lose(self, last: T) -> list[Change[T]]:
        known = self._objects.get(last.metadata.name)
        if known is None or not _is_same(known, last):
            return []
        del self._objects[last.metadata.name]
        return [Vanished(last)]


@dataclass(frozen=True, slots=True)
class WatchRules:
    watch_s: int = 290
    """Requested duration of a watch in seconds. Then the next watch begins."""
    silence_s: float = 75.0
    """Seconds without a line after which a watch is abandoned. Servers send a bookmark every minute."""
    relist_s: float = 600.0
    """Seconds between two complete lists."""
    page: int = 500
    pause_s: float = 0.05
    pause_most_s: float = 5.0


class Watcher(Generic[T]):
    def __init__(
        self,
        api: KubernetesApi,
        path: str,
        kind: type[T],
        on_change: Callable[[list[Change[T]]], None],
        clock: Clock,
        *,
        selector: str = "",
        rules: WatchRules | None = None,
    ) -> None:
        self.view: View[T] = View()
        self.synced = asyncio.Event()
        """Set once all objects were listed."""
        self._api = api
        self._path = path
        self._decoder: Decoder[T] = Decoder(kind)
        self._on_change = on_change
        self._clock = clock
        self._rules = rules or WatchRules()
        self._query = {"labelSelector": selector} if selector else {}
        self._backoff = Backoff(self._rules.pause_s, self._rules.pause_most_s)
        self._log = logger(path=path)
        self._log_once = Once()
        self._log_trouble = WhyLog(self._log, "kubernetes_watch_troubled")

    async def run(self) -> None:
        """Lists and watches, until cancelled."""
        while True:
            version: str | None = await self._list()
            list_again_at_s = self._clock.monotonic_s() + self._rules.relist_s * random.uniform(0.9, 1.1)
            while version is not None and self._clock.monotonic_s() < list_again_at_s:
                version = await self._watch(version)

    async def _list(self) -> str:
        """Lists until that succeeds. Returns the version of the list."""
        while True:
            try:
                version, found = await self._pages()
            except (ApiUnavailable, ApiRefused) as error:
                await self._pause(error)
                continue
            self._backoff.reset()
            changes = self.view.replace(found)
            self._log.debug("kubernetes_listed", objects=len(found), version=version, changes=len(changes))
            if changes:
                self._on_change(changes)
            self.synced.set()
            return version

    async def _pages(self) -> tuple[str, list[T]]:
        found: list[T] = []
        page = ""
        while True:
            query: Query = {**self._query, "limit": self._rules.page, **({"continue": page} if page else {})}
            try:
                listing = _listing.decode(await self._api.get(self._path, query))
            except Undecodable as error:
                raise ApiUnavailable(f"a list cannot be read: {error}") from error
            found += [read for raw in listing.items or () if (read := self._read(raw)) is not None]
            page = listing.metadata.next_page
            if not page:
                return listing.metadata.resource_version, found

    async def _watch(self, version: str) -> str | None:
        """Runs one watch. Returns the version for the next watch, or None if all objects must be listed again."""
        rules, began_s = self._rules, self._clock.monotonic_s()
        query: Query = {
            **self._query,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": rules.watch_s,
        }
        try:
            async with contextlib.aclosing(self._api.watch(self._path, query, rules.silence_s)) as lines:
                async for line in lines:
                    version = self._take(line) or version
                    self._backoff.reset()
        except Expired as error:
            self._log.info("kubernetes_version_expired", version=version, why=str(error))
            # The server answers, so the pauses that grew while it was away are too long.
            self._backoff.reset()
            await self._backoff.wait()
            return None
        except (ApiRefused, WatchSilent) as error:
            # A server that was restored from a backup is silent until it reaches that version again.
            await self._pause(error)
            return None
        except ApiUnavailable as error:
            await self._pause(error)
            return version
        if self._clock.monotonic_s() - began_s < 1.0:
            await self._backoff.wait()
        return version

    def _take(self, line: bytes) -> str:
        """Handles a line. Returns the version up to which all changes are known."""
        try:
            event = _event.decode(line)
            if event.type == "BOOKMARK":
                return _bookmark.decode(event.object).metadata.resource_version
            if event.type == "ERROR":
                error = _error.decode(event.object)
                raise refusal(error.code, error.reason, error.message or "the watch failed")
        except Undecodable as error:
            raise ApiUnavailable(f"an event of a watch cannot be read: {error}") from error
        found = self._read(event.object)
        if found is None:
            return ""
        changes = self.view.lose(found) if event.type == "DELETED" else self.view.see(found)
        if changes:
            self._on_change(changes)
        return found.metadata.resource_version

    def _read(self, raw: msgspec.Raw) -> T | None:
        """Decodes an object; None if that fails."""
        try:
            return self._decoder.decode(raw)
        except Undecodable as error:
            if self._log_once(str(error)):
                self._log.warning("kubernetes_object_unreadable", why=str(error), object=bytes(raw)[:200])
            return None

    async def _pause(self, error: ApiUnavailable | ApiRefused) -> None:
        self._log_trouble(str(error))
        await self._backoff.wait(error.retry_after_s)


def _is_same(known: Object, found: Object | None) -> bool:
    return found is not None and known.metadata.uid == found.metadata.uid
