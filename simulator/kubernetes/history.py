"""The changes of the objects of one kind, in order, within a bounded window.

Watches read from here: they have a version and request the changes after it. A watch whose version is older than the
window gets the error 410 and must list again.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import msgspec

from simulator.kubernetes.objects import Obj


class ChangeType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True)
class Change:
    version: int
    type: ChangeType
    object: Obj
    """The object after the change; for a deletion, its last state."""
    before: Obj | None

    @cached_property
    def encoded(self) -> bytes:
        """The object as JSON, which many watches share."""
        return msgspec.json.encode(self.object)


class History:
    def __init__(self, floor: int, limit: int) -> None:
        self.floor = floor
        """The oldest version from which a watch can start."""
        self.expired = 0
        """How often all running watches were made to list again."""
        self._limit = limit
        self._changes: deque[Change] = deque()
        self._last_dropped = floor
        self._waiting: set[asyncio.Event] = set()

    def append(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > self._limit:
            self._drop()
            self.floor = max(self.floor, self._last_dropped)
        self._wake()

    def compact(self, version: int, *, expire_watches: bool = False) -> None:
        """Forgets the changes up to this version."""
        while self._changes and self._changes[0].version <= version:
            self._drop()
        self.floor = max(self.floor, version)
        if expire_watches:
            self.expired += 1
            self._wake()

    def since(self, version: int) -> list[Change] | None:
        """The changes after the version; None if some are already forgotten."""
        if version < self._last_dropped:
            return None
        newer: list[Change] = []
        for change in reversed(self._changes):
            if change.version <= version:
                break
            newer.append(change)
        return newer[::-1]

    def notify(self, waiting: asyncio.Event) -> None:
        """Sets the event at every change."""
        self._waiting.add(waiting)

    def forget(self, waiting: asyncio.Event) -> None:
        self._waiting.discard(waiting)

    def _drop(self) -> None:
        self._last_dropped = self._changes.popleft().version

    def _wake(self) -> None:
        for waiting in self._waiting:
            waiting.set()
