"""Holds the lease on a key of the bus, and runs the leader's work exactly while it holds it.

The work and the onlooker run in the loop that calls `hold`, the main loop. The lease has a thread with its own event
loop and connection, so that a busy main loop does not delay a renewal. The thread stops to renew when the main loop has
shown no pulse for `stuck_after_s`.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, assert_never

from controlplane.lease.effects import Lead, StepDown
from controlplane.lease.renewer import LeaseChange, Renewer, Seen
from controlplane.lease.state import LeaseSettings
from messages import subjects
from messages.ids import Epoch
from messages.records import LeaseRecord
from runtime.bus import Bus, BusSettings
from runtime.clock import Clock, SystemClock
from runtime.kv_ttl import Forgotten
from runtime.loop_thread import LoopThread, Mailbox

T = TypeVar("T")
PULSE_S = 0.5
END_S = 10.0
"""Seconds that the thread has to release the key and close its connection."""


class Onlooker:
    """Callbacks for changes of the lease, in order and in the main loop; to be overridden."""

    def lost(self, why: str) -> None:
        """Called before the work is cancelled."""

    def saw(self, holder: LeaseRecord | None, *, ours: bool) -> None:
        """Called with the value of the key; None if it was released, or expired and the bucket reports that."""

    def forgotten(self) -> None:
        """Called when the bus lost its data; later values are not comparable with earlier ones."""


class Leadership:
    """One term of leadership, passed to the leader's work."""

    def __init__(self, epoch: Epoch, current: Callable[[], Epoch | None]) -> None:
        self.epoch = epoch
        self._current = current

    def may_act(self) -> bool:
        """True while this master leads. Call it right before each action of a leader that its epoch does not fence.

        A paused process or a busy loop may not know yet that it lost the lease; this checks the state of the lease and
        the clock. Any thread may call it.
        """
        return self._current() == self.epoch


Work = Callable[[Leadership], Awaitable[T]]


async def hold(
    bus: BusSettings,
    name: str,
    work: Work[T],
    *,
    url: str = "",
    settings: LeaseSettings | None = None,
    clock: Clock | None = None,
    onlooker: Onlooker | None = None,
) -> T:
    """Runs `work` each time that this process leads, and cancels it when it no longer leads.

    Returns the result of `work` when it ends by itself. Raises, in a group, what `work` or the thread of the lease
    raises. Finally it releases the key, so that a standby need not wait until it expires, unless the thread failed.
    """
    clock = clock or SystemClock()
    record = LeaseRecord(f"{name}/{secrets.token_hex(4)}", clock.wall_s(), url)
    return await Keeper(bus, record, work, settings or LeaseSettings(), clock, onlooker or Onlooker()).run()


class Keeper(Generic[T]):
    def __init__(
        self,
        bus: BusSettings,
        record: LeaseRecord,
        work: Work[T],
        settings: LeaseSettings,
        clock: Clock,
        onlooker: Onlooker,
    ) -> None:
        self._bus = bus
        self._record = record
        self._work = work
        self._settings = settings
        self._clock = clock
        self._onlooker = onlooker
        self._pulse_s = clock.monotonic_s()
        self._notices: Mailbox[LeaseChange] = Mailbox()
        self._thread = LoopThread("lease", self._renew, end_s=END_S)
        self._renewer: Renewer | None = None
        self._working: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def run(self) -> T:
        # Two groups: when this is cancelled, the key is released only after the work has ended.
        async with asyncio.TaskGroup() as threads:
            renewing = threads.create_task(self._thread.run(), name="lease/thread")
            async with asyncio.TaskGroup() as tasks:
                beating = tasks.create_task(self._beat(), name="lease/pulse")
                obeying = tasks.create_task(self._obey(tasks), name="lease/notices")
                await asyncio.wait({self._ended})
                beating.cancel()
                obeying.cancel()
            renewing.cancel()
        return self._ended.result()

    async def _renew(self) -> None:
        """Runs in the thread."""
        bus = await Bus.connect(self._bus)
        try:
            key = await bus.expiring_key(subjects.STATE_BUCKET, subjects.LEADER_KEY)
            self._renewer = Renewer(
                bus, key, self._record, self._settings, self._clock, lambda: self._pulse_s, self._notices.post
            )
            await self._renewer.run()
        finally:
            await bus.close()

    async def _beat(self) -> None:
        while True:
            self._pulse_s = self._clock.monotonic_s()
            await asyncio.sleep(PULSE_S)

    async def _obey(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            notice = await self._notices.next()
            match notice:
                case Lead(epoch):
                    self._working = tasks.create_task(self._lead(epoch), name=f"lease/work-{epoch}")
                    # Not in `_lead`: a task that is cancelled before it begins runs none of its code.
                    self._working.add_done_callback(lambda _: self._thread.post(self._end_work))
                case StepDown(why):
                    self._onlooker.lost(why)
                    if self._working is not None:
                        self._working.cancel(why)
                case Seen(holder, ours):
                    self._onlooker.saw(holder, ours=ours)
                case Forgotten():
                    self._onlooker.forgotten()
                case _:
                    assert_never(notice)

    async def _lead(self, epoch: Epoch) -> None:
        result = await self._work(Leadership(epoch, self._current_epoch))
        if not self._ended.done():
            self._ended.set_result(result)

    def _current_epoch(self) -> Epoch | None:
        return self._renewer.epoch if self._renewer is not None else None

    def _end_work(self) -> None:
        """Runs in the thread."""
        if self._renewer is not None:
            self._renewer.end_work()
