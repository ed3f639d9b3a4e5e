"""A watch: the changes of the objects of a kind since a version, as lines of JSON.

With a selector, an object that begins to match is added, and one that stops matching is deleted. A watch that falls
behind the window gets an error event with code 410; the client lists again. Bookmarks report the position of the watch.
A watch that begins at a future version reports nothing before that version.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from simulator.kubernetes.history import Change, ChangeType
from simulator.kubernetes.objects import Obj
from simulator.kubernetes.problems import ApiProblem, gone
from simulator.kubernetes.resources import Resource
from simulator.kubernetes.selectors import Predicate
from simulator.kubernetes.store import Store

_LEAST_TIMEOUT_S = 1800.0
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class WatchOptions:
    namespace: str = ""
    matches: Predicate | None = None
    version: int = 0
    """Version after which changes are reported; 0: begin with all existing objects."""
    timeout_s: float | None = None
    bookmarks: bool = False
    bookmark_s: float = 60.0
    marks_initial_end: bool = False
    gone_as_status: bool = False
    """Refuse a version that is too old with a status, not an error event; real servers do either."""


async def watch(
    store: Store, resource: Resource, api_version: str, options: WatchOptions
) -> AsyncGenerator[bytes, None]:
    lines = _Lines(resource, api_version, options)
    history = store.history(resource)
    expired = history.expired
    loop = asyncio.get_running_loop()
    end_s = loop.time() + (options.timeout_s or _LEAST_TIMEOUT_S * (1 + random.random()))
    bookmark_s = loop.time() + options.bookmark_s if options.bookmarks else end_s
    position = options.version or store.version
    if not options.version:
        for line in lines.initial(store.all(resource, options.namespace), position):
            yield line
    elif position < history.floor:
        yield lines.error(store.expired(resource, position))
        return
    changed = asyncio.Event()
    history.notify(changed)
    try:
        while True:
            changed.clear()
            changes = history.since(max(position, options.version))
            if changes is None or history.expired != expired:
                yield lines.error(gone(f"too old resource version: {position} ({history.floor})"))
                return
            position = store.version
            for line in lines.changes(changes):
                yield line
            if changed.is_set():
                continue
            now_s = loop.time()
            if options.bookmarks and now_s >= bookmark_s:
                bookmark_s = now_s + options.bookmark_s
                if position >= options.version:
                    yield lines.bookmark(position)
            if now_s >= end_s:
                return
            await _wait_for(changed, min(end_s, bookmark_s) - now_s)
    finally:
        history.forget(changed)


async def _wait_for(changed: asyncio.Event, most_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, most_s)):
            await changed.wait()


def check_start(store: Store, resource: Resource, options: WatchOptions) -> None:
    """Raises if the watch is refused before the stream begins."""
    if options.gone_as_status and 0 < options.version < store.history(resource).floor:
        raise store.expired(resource, options.version)


@dataclass(frozen=True, slots=True)
class _Lines:
    resource: Resource
    api_version: str
    options: WatchOptions

    def initial(self, objects: Iterable[Obj], version: int) -> Iterator[bytes]:
        """Lines for all existing objects."""
        for obj in objects:
            if self.options.matches is None or self.options.matches(obj):
                yield self.event("ADDED", obj)
        if self.options.marks_initial_end:
            yield self.bookmark(version, _INITIAL_END)

    def changes(self, changes: Iterable[Change]) -> Iterator[bytes]:
        lines = (self._change(change) for change in changes)
        return (line for line in lines if line is not None)

    def _change(self, change: Change) -> bytes | None:
        """The line for a change; None if the watch does not select the object."""
        before = change.before is not None and self._selects(change.before)
        now = change.type is not ChangeType.DELETED and self._selects(change.object)
        if not before and not now:
            return None
        kind = "MODIFIED" if before and now else "ADDED" if now else "DELETED"
        if change.object.get("apiVersion") == self.api_version:
            return _line(kind, change.encoded)
        return self.event(kind, change.object)

    def event(self, kind: str, obj: Obj) -> bytes:
        return _line(kind, msgspec.json.encode({**obj, "apiVersion": self.api_version}))

    def bookmark(self, version: int, annotations: dict[str, str] | None = None) -> bytes:
        fields: Obj = {"resourceVersion": str(version)}
        if annotations:
            fields["annotations"] = annotations
        obj: Obj = {"kind": self.resource.kind, "apiVersion": self.api_version, "metadata": fields}
        return _line("BOOKMARK", msgspec.json.encode(obj))

    def error(self, problem: ApiProblem) -> bytes:
        return _line("ERROR", msgspec.json.encode(problem.status()))

    def _selects(self, obj: Obj) -> bool:
        namespace = self.options.namespace
        if namespace and obj["metadata"].get("namespace") != namespace:
            return False
        return self.options.matches is None or self.options.matches(obj)


def _line(kind: str, encoded: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + encoded + b"}\n"
