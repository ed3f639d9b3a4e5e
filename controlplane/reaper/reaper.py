"""The shell of the reaper, which runs in a master every few minutes while the master leads."""

import asyncio
from collections.abc import Awaitable, Callable

from controlplane.clouds.interface import Cloud
from controlplane.clouds.outcomes import Refused, Unreachable
from controlplane.reaper.decide import Announce, Looked, LookFailed, ReaperEvent, RemovalEnded, Remove, decide
from controlplane.reaper.findings import FleetScope, Found
from controlplane.reaper.inventory import look, name_of
from controlplane.reaper.removing import remove
from controlplane.reaper.state import Reaping, Records
from messages.events import Event
from messages.ids import JobName
from runtime.clock import Clock
from runtime.errors import BusUnavailable
from runtime.logs import WhyLog, logger

LOOK_S = 120.0
AT_ONCE = 4


class Reaper:
    def __init__(
        self,
        cloud: Cloud,
        fleet: FleetScope,
        records: Callable[[], Awaitable[Records]],
        is_settled: Callable[[JobName], bool],
        announce: Callable[[Event], None],
        may_act: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """`records` reads the records or raises `BusUnavailable`; `is_settled`: no allocator works for the job."""
        self._cloud = cloud
        self._fleet = fleet
        self._records = records
        self._is_settled = is_settled
        self._announce = announce
        self._may_act = may_act
        self._clock = clock
        self._state = Reaping()
        self._unseen = WhyLog(logger(), "nothing_reaped")

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Look once, and remove what was found."""
        turns = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            for found in self._decide(await self._see()):
                tasks.create_task(self._reap(found, turns), name=f"reap/{name_of(found.resource)}")

    async def _see(self) -> Looked | LookFailed:
        if not self._may_act():
            return LookFailed()
        inventory = await look(self._cloud)
        if isinstance(inventory, Unreachable | Refused):
            self._unseen(inventory.detail)
            return LookFailed()
        try:
            records = await self._records()
        except BusUnavailable as error:
            self._unseen(str(error))
            return LookFailed()
        at_work = frozenset(job for job in inventory.jobs if not self._is_settled(job))
        return Looked(self._clock.wall_s(), inventory, records, at_work)

    def _decide(self, event: ReaperEvent) -> list[Found]:
        """Decide, announce, and return the resources to remove."""
        decision = decide(self._state, event, self._fleet)
        self._state = decision.state
        for effect in decision.effects:
            if isinstance(effect, Announce):
                self._announce(effect.event)
        return [effect.found for effect in decision.effects if isinstance(effect, Remove)]

    async def _reap(self, found: Found, turns: asyncio.Semaphore) -> None:
        async with turns:
            if not self._may_act() or self._was_taken_up(found):
                return
            trouble = await remove(self._cloud, found.resource)
        self._decide(RemovalEnded(found, trouble))

    def _was_taken_up(self, found: Found) -> bool:
        """Report whether another job of the name took over the resource while earlier ones were removed."""
        return found.job is not None and not self._is_settled(found.job)
