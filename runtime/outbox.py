"""Outgoing messages that wait for the bus: ordered and bounded; each drop is counted.

A worker's heartbeat replaces the previous one on its subject. A full outbox first drops the oldest message that can be
missed (heartbeats, progress, log lines), then the oldest of all. A message that can be missed is also dropped after
`stale_s`. Drops are counted by reason.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass

from messages.clusters import ClusterHeartbeat
from messages.envelope import Message
from messages.workers import WorkerHeartbeat
from messages.worlds import LogLines, Progress

_REPLACED_BY_NEWER = (WorkerHeartbeat,)
_CAN_BE_MISSED = (WorkerHeartbeat, ClusterHeartbeat, Progress, LogLines)

FULL = "outbox_full"
STALE = "outbox_stale"


@dataclass(frozen=True, slots=True)
class Outgoing:
    subject: str
    payload: bytes
    put_at_s: float
    can_be_missed: bool
    replaced_by_newer: bool


def outgoing(subject: str, message: Message, payload: bytes, now_s: float) -> Outgoing:
    return Outgoing(
        subject, payload, now_s, isinstance(message, _CAN_BE_MISSED), isinstance(message, _REPLACED_BY_NEWER)
    )


class Outbox:
    def __init__(
        self,
        dropped: Counter[str],
        max_messages: int = 10_000,
        max_bytes: int = 16 * 1024 * 1024,
        stale_s: float = 60.0,
    ) -> None:
        self._dropped = dropped
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._stale_s = stale_s
        self._waiting: OrderedDict[int, Outgoing] = OrderedDict()
        self._can_be_missed: OrderedDict[int, None] = OrderedDict()
        self._newest_of: dict[str, int] = {}
        self._bytes = 0
        self._next = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: Outgoing) -> None:
        if item.replaced_by_newer:
            older = self._newest_of.get(item.subject)
            if older is not None:
                self._take(older)
        while self._waiting and (
            len(self._waiting) >= self._max_messages or self._bytes + len(item.payload) > self._max_bytes
        ):
            self._take(next(iter(self._can_be_missed or self._waiting)))
            self._dropped[FULL] += 1
        ticket = self._next
        self._next += 1
        self._waiting[ticket] = item
        self._bytes += len(item.payload)
        if item.can_be_missed:
            self._can_be_missed[ticket] = None
        if item.replaced_by_newer:
            self._newest_of[item.subject] = ticket

    def pop(self, now_s: float) -> Outgoing | None:
        """Removes and returns the oldest message that is not stale."""
        while self._waiting:
            item = self._take(next(iter(self._waiting)))
            if item.can_be_missed and now_s - item.put_at_s > self._stale_s:
                self._dropped[STALE] += 1
                continue
            return item
        return None

    def _take(self, ticket: int) -> Outgoing:
        item = self._waiting.pop(ticket)
        self._bytes -= len(item.payload)
        self._can_be_missed.pop(ticket, None)
        if self._newest_of.get(item.subject) == ticket:
            del self._newest_of[item.subject]
        return item
