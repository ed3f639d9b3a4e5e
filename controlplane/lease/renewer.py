"""Acquires and renews the lease on a key of the bus.

Runs in the thread of the lease (`keeper.py`), with that thread's bus connection. Calls `notify`, in order, with what
concerns the leader's work and the onlooker.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import assert_never

from controlplane.lease import events
from controlplane.lease.decide import decide
from controlplane.lease.effects import Lead, LeaseEffect, ReadKey, StepDown, WriteKey
from controlplane.lease.events import LeaseEvent
from controlplane.lease.state import Lease, LeaseSettings, new_lease
from messages.decoding import Undecodable, decode, encode_readable
from messages.ids import Epoch
from messages.records import LeaseRecord
from runtime.bus import Bus
from runtime.clock import Clock
from runtime.decision import Decision
from runtime.errors import BusClosed, BusRefused, BusUnavailable, Conflict, NoAnswer
from runtime.kv_ttl import ExpiringKey, Forgotten, Version
from runtime.logs import Once, logger
from runtime.role import RoleLoop

RESIGN_S = 1.0
UNKNOWN = "unknown"
"""The holder of a key whose value cannot be read."""
_log_once = Once()


@dataclass(frozen=True, slots=True)
class Seen:
    """The value of the key; None if it was released, or expired and the bucket reports that."""

    holder: LeaseRecord | None
    ours: bool


LeaseChange = Lead | StepDown | Seen | Forgotten


class Renewer:
    def __init__(
        self,
        bus: Bus,
        key: ExpiringKey,
        record: LeaseRecord,
        settings: LeaseSettings,
        clock: Clock,
        pulse_s: Callable[[], float],
        notify: Callable[[LeaseChange], None],
    ) -> None:
        self._bus = bus
        self._key = key
        self._settings = settings
        self._clock = clock
        self._pulse_s = pulse_s
        self._notify = notify
        self._holder = record.holder
        self._value = encode_readable(record, LeaseRecord)
        self._loop: RoleLoop[Lease, LeaseEvent, LeaseEffect] = RoleLoop(
            "lease", new_lease(record.holder, settings), self._decide, self, self._tick, clock
        )
        self._writing: asyncio.Task[int] | None = None
        """The newest write. It survives a cancellation, because the key cannot be released before its answer."""
        self._log = logger(lease=key.name, holder=record.holder)

    @property
    def epoch(self) -> Epoch | None:
        """The epoch if this process leads now, by its own clock; else None.

        Any thread may read it: the state is immutable and replaced as a whole.
        """
        lease = self._loop.state
        return lease.epoch if lease.may_act(self._clock.monotonic_s()) else None

    async def run(self) -> None:
        """Runs until cancelled, after the leader's work has ended, then releases the key for a standby.

        After an error the work still runs, so the key must expire.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._bus.run(), name="lease/bus")
                tasks.create_task(self._loop.run(), name="lease/loop")
                tasks.create_task(self._watch(), name="lease/watch")
        except asyncio.CancelledError:
            await self._resign()
            raise
        finally:
            if self._writing is not None:
                self._writing.cancel()

    def end_work(self) -> None:
        """Notes that the leader's work has ended."""
        self._loop.post(events.WorkEnded(self._clock.monotonic_s()))

    def perform(self, effect: LeaseEffect) -> Awaitable[LeaseEvent | None] | None:
        match effect:
            case ReadKey(attempt):
                return self._read(attempt)
            case WriteKey(attempt, revision):
                return self._write(attempt, revision)
            case Lead(epoch):
                self._log.info("lease_held", epoch=epoch)
                self._notify(effect)
            case StepDown(why):
                self._log.warning("lease_lost", why=why)
                self._notify(effect)
            case _:
                assert_never(effect)
        return None

    def _decide(self, lease: Lease, event: LeaseEvent) -> Decision[Lease, LeaseEffect]:
        """Decides with the current time, because the process may have been paused since the event arrived."""
        return decide(lease, replace(event, at_s=self._clock.monotonic_s()))

    def _tick(self, now_s: float) -> LeaseEvent:
        if self._bus.connected == self._loop.state.connected:
            return events.Ticked(now_s, self._pulse_s())
        return events.BusBack(now_s) if self._bus.connected else events.BusLost(now_s)

    async def _watch(self) -> None:
        async with contextlib.aclosing(self._key.follow()) as versions:
            async for version in versions:
                now_s = self._clock.monotonic_s()
                match version:
                    case Version():
                        holder = read_record(version)
                        name = holder.holder if holder is not None else None
                        self._loop.post(events.KeySeen(now_s, version.revision, name))
                        self._notify(Seen(holder, ours=name == self._holder))
                    case Forgotten():
                        self._loop.post(events.KeyForgotten(now_s))
                        self._notify(version)
                    case _:
                        assert_never(version)

    async def _read(self, attempt: int) -> LeaseEvent:
        try:
            version = await self._key.read(self._settings.answer_s)
        except (BusUnavailable, NoAnswer) as error:
            return events.Unanswered(0.0, attempt, str(error))
        holder = read_record(version)
        return events.KeyRead(0.0, attempt, version.revision, holder.holder if holder is not None else None)

    async def _write(self, attempt: int, revision: int) -> LeaseEvent:
        write = self._key.write(
            self._value, revision=revision, ttl_s=self._settings.ttl_s, timeout_s=self._settings.answer_s
        )
        self._writing = asyncio.create_task(write, name="lease/write")
        try:
            written = await asyncio.shield(self._writing)
        except Conflict:
            return events.Conflicted(0.0, attempt)
        except (BusUnavailable, NoAnswer) as error:
            return events.Unanswered(0.0, attempt, str(error))
        return events.Written(0.0, attempt, written)

    async def _resign(self) -> None:
        """Releases the key; if this fails, it expires by itself."""
        lease = self._loop.state
        revision = lease.revision if lease.key is not None and lease.key.holder == lease.holder else None
        failures = (Conflict, BusUnavailable, NoAnswer, BusRefused, BusClosed)
        if self._writing is not None:
            with contextlib.suppress(*failures):
                revision = await self._writing
        if revision is not None:
            with contextlib.suppress(*failures):
                await self._key.remove(revision=revision, timeout_s=RESIGN_S)


def read_record(version: Version) -> LeaseRecord | None:
    """Decodes the key. An unreadable value counts as a holder that never renews, so it is replaced when overdue."""
    if version.value is None:
        return None
    try:
        return decode(version.value, LeaseRecord)
    except Undecodable as error:
        if _log_once((version.revision, str(error))):
            logger().error("lease_unreadable", revision=version.revision, error=str(error))
        return LeaseRecord(UNKNOWN, 0.0)
