"""Lists the objects of one kind, then watches what happens to them, for ever.

A watch goes on where the last one ended. When the server has forgotten that point (410), says nothing at all, or
refuses for any other reason, everything is listed again and compared: what was deleted meanwhile is told as if it had
been seen. The same is done once in a while without need. Nothing is polled.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from agents.cluster.kubernetes.client import ApiRefused, ApiUnavailable, Expired, KubernetesApi, Query, Silent, refused
from agents.cluster.kubernetes.objects import AnyObject, ErrorStatus, Listing, Object, WatchEvent
from agents.cluster.kubernetes.pauses import Pauses
from agents.cluster.kubernetes.view import Change, View
from messages.decoding import Decoder, Undecodable
from runtime.clock import Clock
from runtime.logs import Once, WhyLog, logger

T = TypeVar("T", bound=Object)

_listing: Decoder[Listing] = Decoder(Listing)
_event: Decoder[WatchEvent] = Decoder(WatchEvent)
_bookmark: Decoder[AnyObject] = Decoder(AnyObject)
_error: Decoder[ErrorStatus] = Decoder(ErrorStatus)


@dataclass(frozen=True, slots=True)
class WatchRules:
    watch_s: int = 290
    """After so long the server is asked to end a watch, and the next one begins."""
    silence_s: float = 75.0
    """A server that sends bookmarks does so every minute."""
    relist_s: float = 600.0
    page: int = 500
    pause_s: float = 0.05
    pause_most_s: float = 5.0


class Watcher(Generic[T]):
    def __init__(
        self,
        api: KubernetesApi,
        path: str,
        kind: type[T],
        tell: Callable[[list[Change[T]]], None],
        clock: Clock,
        *,
        selector: str = "",
        rules: WatchRules | None = None,
    ) -> None:
        self.view: View[T] = View()
        self.synced = asyncio.Event()
        """Everything was seen at least once."""
        self._api = api
        self._path = path
        self._decoder: Decoder[T] = Decoder(kind)
        self._tell = tell
        self._clock = clock
        self._rules = rules or WatchRules()
        self._query = {"labelSelector": selector} if selector else {}
        self._pauses = Pauses(self._rules.pause_s, self._rules.pause_most_s)
        self._log = logger(path=path)
        self._log_once = Once()
        self._log_trouble = WhyLog(self._log, "kubernetes_watch_troubled")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            version: str | None = await self._list()
            list_again_at_s = self._clock.monotonic_s() + self._rules.relist_s * random.uniform(0.9, 1.1)
            while version is not None and self._clock.monotonic_s() < list_again_at_s:
                version = await self._watch(version)

    async def _list(self) -> str:
        """The version that the list shows; tried until it can be had."""
        while True:
            try:
                version, found = await self._pages()
            except (ApiUnavailable, ApiRefused) as error:
                await self._pause(error)
                continue
            self._pauses.reset()
            changes = self.view.replace(found)
            self._log.debug("kubernetes_listed", objects=len(found), version=version, changes=len(changes))
            if changes:
                self._tell(changes)
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
        """One watch, from this version to the one that the next begins at; None if everything has to be listed."""
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
                    self._pauses.reset()
        except Expired as error:
            self._log.info("kubernetes_version_expired", version=version, why=str(error))
            # It is there and answers: what pauses had grown to while it was away is no measure any more.
            self._pauses.reset()
            await self._pauses.wait()
            return None
        except ApiRefused as error:
            await self._pause(error)
            return None
        except Silent as error:
            # A server that was restored from an older state shows nothing before it has come to that version again.
            await self._pause(error)
            return None
        except ApiUnavailable as error:
            await self._pause(error)
            return version
        if self._clock.monotonic_s() - began_s < 1.0:
            await self._pauses.wait()
        return version

    def _take(self, line: bytes) -> str:
        """The version up to which all is known now."""
        try:
            event = _event.decode(line)
            if event.type == "BOOKMARK":
                return _bookmark.decode(event.object).metadata.resource_version
            if event.type == "ERROR":
                error = _error.decode(event.object)
                raise refused(error.code, error.reason, error.message or "the watch failed")
        except Undecodable as error:
            raise ApiUnavailable(f"an event of a watch cannot be read: {error}") from error
        found = self._read(event.object)
        if found is None:
            return ""
        changes = self.view.lose(found) if event.type == "DELETED" else self.view.see(found)
        if changes:
            self._tell(changes)
        return found.metadata.resource_version

    def _read(self, raw: msgspec.Raw) -> T | None:
        """An object that is not as it should be is as good as none."""
        try:
            return self._decoder.decode(raw)
        except Undecodable as error:
            if self._log_once(str(error)):
                self._log.warning("kubernetes_object_unreadable", why=str(error), object=bytes(raw)[:200])
            return None

    async def _pause(self, error: ApiUnavailable | ApiRefused) -> None:
        self._log_trouble(str(error))
        await self._pauses.wait(error.retry_after_s if isinstance(error, ApiUnavailable) else 0.0)
