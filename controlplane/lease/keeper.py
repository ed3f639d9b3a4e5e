"""Holds the lease on a key of the bus, and runs the leader's work exactly while it is held."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Generic, TypeVar, assert_never

from controlplane.lease import events
from controlplane.lease.decide import decide
from controlplane.lease.effects import Lead, LeaseEffect, ReadKey, StepDown, WriteKey
from controlplane.lease.events import LeaseEvent
from controlplane.lease.state import Lease, LeaseSettings, new_lease
from messages import subjects
from messages.decoding import Undecodable, decode, encode_readable
from messages.ids import Epoch
from messages.records import LeaseRecord
from runtime.bus import Bus
from runtime.clock import Clock, SystemClock
from runtime.decision import Decision
from runtime.errors import BusClosed, BusRefused, BusUnavailable, Conflict, NoAnswer
from runtime.kv_ttl import ExpiringKey, Forgotten, Version
from runtime.logs import Once, logger
from runtime.role import RoleLoop

T = TypeVar("T")
RESIGN_S = 1.0
UNKNOWN = "unknown"
"""The holder of a key whose value cannot be read."""
_log_once = Once()


class Onlooker:
    """Told what happens to the lease, to be overridden; in the order in which it happened."""

    def lost(self, why: str) -> None:
        """Before the work is cancelled."""

    def saw(self, holder: LeaseRecord | None, *, ours: bool) -> None:
        """What is in the key; None when it was given up, or expired where the bucket tells that."""

    def forgotten(self) -> None:
        """The bus has lost what it had stored: what is seen from now on is of another one."""


class Leadership:
    """Handed to the leader's work."""

    def __init__(self, epoch: Epoch, present: Callable[[], Epoch | None]) -> None:
        self.epoch = epoch
        self._present = present

    def may_act(self) -> bool:
        """To be asked right before anything that only a leader may do and that its epoch does not fence.

        A process that was paused may not have heard yet that it lost the lease; this looks at the clock.
        """
        return self._present() == self.epoch


Work = Callable[[Leadership], Awaitable[T]]


async def hold(
    bus: Bus,
    name: str,
    work: Work[T],
    *,
    url: str = "",
    bucket: str = subjects.STATE_BUCKET,
    key: str = subjects.LEADER_KEY,
    settings: LeaseSettings | None = None,
    clock: Clock | None = None,
    onlooker: Onlooker | None = None,
) -> T:
    """Runs `work` whenever this process leads and cancels it when it no longer does, as often as that happens.

    Returns what `work` returns once it ends by itself, and raises what it raises, in a group. On the way out, however
    that comes, the key is given up, so that a standby need not wait for it to expire.
    """
    opened = await bus.expiring_key(bucket, key)
    clock = clock or SystemClock()
    record = LeaseRecord(f"{name}/{secrets.token_hex(4)}", clock.wall_s(), url)
    keeper = Keeper(bus, opened, record, work, settings or LeaseSettings(), clock, onlooker or Onlooker())
    return await keeper.run()


class Keeper(Generic[T]):
    def __init__(
        self,
        bus: Bus,
        key: ExpiringKey,
        record: LeaseRecord,
        work: Work[T],
        settings: LeaseSettings,
        clock: Clock,
        onlooker: Onlooker,
    ) -> None:
        self._bus = bus
        self._key = key
        self._work = work
        self._settings = settings
        self._clock = clock
        self._onlooker = onlooker
        self._holder = record.holder
        self._value = encode_readable(record, LeaseRecord)
        self._loop: RoleLoop[Lease, LeaseEvent, LeaseEffect] = RoleLoop(
            "lease", new_lease(record.holder, settings), self._decide, self, self._tick, clock
        )
        self._tasks: asyncio.TaskGroup | None = None
        self._working: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._log = logger(lease=key.name, holder=record.holder)

    @property
    def epoch(self) -> Epoch | None:
        """While this process leads, by its own clock at this very moment."""
        lease = self._loop.state
        return lease.epoch if lease.may_act(self._clock.monotonic_s()) else None

    async def run(self) -> T:
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                loop = tasks.create_task(self._loop.run(), name="lease/loop")
                watch = tasks.create_task(self._watch(), name="lease/watch")
                await asyncio.wait({self._ended})
                loop.cancel()
                watch.cancel()
        finally:
            await self._resign()
        return self._ended.result()

    def perform(self, effect: LeaseEffect) -> Awaitable[LeaseEvent | None] | None:
        match effect:
            case ReadKey(attempt):
                return self._read(attempt)
            case WriteKey(attempt, revision):
                return self._write(attempt, revision)
            case Lead(epoch):
                self._log.info("lease_held", epoch=epoch)
                self._start(epoch)
            case StepDown(why):
                self._log.warning("lease_lost", why=why)
                self._stop(why)
            case _:
                assert_never(effect)
        return None

    def _decide(self, lease: Lease, event: LeaseEvent) -> Decision[Lease, LeaseEffect]:
        """Stamped when it is decided: between its arrival and now the process may have been paused."""
        return decide(lease, replace(event, at_s=self._clock.monotonic_s()))

    def _tick(self, now_s: float) -> LeaseEvent:
        if self._bus.connected == self._loop.state.connected:
            return events.Ticked(now_s)
        return events.BusBack(now_s) if self._bus.connected else events.BusLost(now_s)

    def _start(self, epoch: Epoch) -> None:
        if self._tasks is None:
            raise RuntimeError("a keeper leads only while it runs")
        self._working = self._tasks.create_task(self._lead(epoch), name=f"lease/work-{epoch}")

    async def _lead(self, epoch: Epoch) -> None:
        try:
            result = await self._work(Leadership(epoch, lambda: self.epoch))
        finally:
            self._loop.post(events.WorkEnded(self._clock.monotonic_s()))
        if not self._ended.done():
            self._ended.set_result(result)

    def _stop(self, why: str) -> None:
        self._onlooker.lost(why)
        if self._working is not None:
            self._working.cancel(why)

    async def _watch(self) -> None:
        async with contextlib.aclosing(self._key.follow()) as versions:
            async for version in versions:
                now_s = self._clock.monotonic_s()
                match version:
                    case Version():
                        self._loop.post(events.KeySeen(now_s, version.revision, _holder(version)))
                        self._onlooker.saw(read_record(version), ours=_holder(version) == self._holder)
                    case Forgotten():
                        self._loop.post(events.KeyForgotten(now_s))
                        self._onlooker.forgotten()
                    case _:
                        assert_never(version)

    async def _read(self, attempt: int) -> LeaseEvent:
        try:
            version = await self._key.read(self._settings.answer_s)
        except (BusUnavailable, NoAnswer) as error:
            return events.Unanswered(0.0, attempt, str(error))
        return events.KeyRead(0.0, attempt, version.revision, _holder(version))

    async def _write(self, attempt: int, revision: int) -> LeaseEvent:
        try:
            written = await self._key.write(
                self._value, revision=revision, ttl_s=self._settings.ttl_s, timeout_s=self._settings.answer_s
            )
        except Conflict:
            return events.Conflicted(0.0, attempt)
        except (BusUnavailable, NoAnswer) as error:
            return events.Unanswered(0.0, attempt, str(error))
        return events.Written(0.0, attempt, written)

    async def _resign(self) -> None:
        """Nothing of the work runs any more; if this fails the key expires by itself."""
        lease = self._loop.state
        if lease.key is None or lease.key.holder != lease.holder:
            return
        with contextlib.suppress(Conflict, BusUnavailable, NoAnswer, BusRefused, BusClosed):
            await self._key.remove(revision=lease.revision, timeout_s=RESIGN_S)


def read_record(version: Version) -> LeaseRecord | None:
    """A value that no master wrote belongs to a holder that never renews: it is replaced when it is overdue."""
    if version.value is None:
        return None
    try:
        return decode(version.value, LeaseRecord)
    except Undecodable as error:
        if _log_once((version.revision, str(error))):
            logger().error("lease_unreadable", revision=version.revision, error=str(error))
        return LeaseRecord(UNKNOWN, 0.0)


def _holder(version: Version) -> str | None:
    record = read_record(version)
    return record.holder if record is not None else None
