"""The reaper that runs with a master: every few minutes, and only while the master leads.

It removes less than a person may: pools of jobs that nobody knows or that have ended, and clusters whose creation
failed; each only when two looks in a row have found it so. Of the rest it tells.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import assert_never

from controlplane.clouds.interface import Cloud, ClusterInfo, MachineInfo, PoolInfo
from controlplane.clouds.outcomes import Refused, Unreachable
from controlplane.reaper.claims import Claim, Claims
from controlplane.reaper.findings import Clusters, Fleet, Found, sort_out
from controlplane.reaper.inventory import Inventory, Key, Resource, key_of, look, name_of
from controlplane.reaper.removing import remove
from messages.events import FLEET, Event
from messages.ids import JobName
from messages.jobs import Scalar
from runtime.clock import Clock
from runtime.errors import BusUnavailable
from runtime.logs import WhyLog, logger

LOOK_S = 120.0
AT_ONCE = 4
MACHINE_HINT = "no pool has it: delete it by hand, as `tradewind reap` says"


class Reaper:
    def __init__(
        self,
        cloud: Cloud,
        fleet: Fleet,
        claims: Callable[[], Awaitable[Claims]],
        is_settled: Callable[[JobName], bool],
        announce: Callable[[Event], None],
        may_act: Callable[[], bool],
        clock: Clock,
        look_s: float = LOOK_S,
    ) -> None:
        """`claims`: what the records say now, raises `BusUnavailable`; `is_settled`: no allocator is at work."""
        self._cloud = cloud
        self._fleet = fleet
        self._claims = claims
        self._is_settled = is_settled
        self._announce = announce
        self._may_act = may_act
        self._clock = clock
        self._look_s = look_s
        self._suspects: frozenset[Key] = frozenset()
        self._told: dict[Key, str] = {}
        """What was in the way of each, so that it is not told at every look."""
        self._unseen = WhyLog(logger(), "nothing_reaped")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._look_s)
            await self.look()

    async def look(self) -> None:
        """Once."""
        found = await self._orphans()
        before, self._suspects = self._suspects, frozenset(key_of(each.resource) for each in found)
        self._told = {key: why for key, why in self._told.items() if key in self._suspects}
        confirmed = [each for each in found if key_of(each.resource) in before]
        turns = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            for each in confirmed:
                tasks.create_task(self._reap(each, turns), name=f"reap/{name_of(each.resource)}")

    async def _orphans(self) -> tuple[Found, ...]:
        if not self._may_act():
            return ()
        inventory = await look(self._cloud)
        if isinstance(inventory, Unreachable | Refused):
            self._unseen(inventory.detail)
            return ()
        try:
            recorded = await self._claims()
        except BusUnavailable as error:
            self._unseen(str(error))
            return ()
        claims = {**recorded, **self._unsettled(inventory, recorded)}
        return sort_out(inventory, claims, self._fleet, self._clock.wall_s(), Clusters.FAILED).orphans

    def _unsettled(self, inventory: Inventory, recorded: Claims) -> dict[JobName, Claim]:
        """Whatever the records say: while an allocator is at work for a job, what is the job's is its to remove."""
        return {
            job: Claim.ENDING
            for job in inventory.jobs
            if not self._is_settled(job) and recorded.get(job) in (None, Claim.ENDED)
        }

    async def _reap(self, found: Found, turns: asyncio.Semaphore) -> None:
        async with turns:
            if not self._may_act() or self._was_taken_up(found):
                return
            machine = isinstance(found.resource, MachineInfo)
            trouble = MACHINE_HINT if machine else await remove(self._cloud, found.resource)
        key, name = key_of(found.resource), name_of(found.resource)
        if not trouble:
            self._tell("reaped", f"{name} was removed", found.why, found)
        elif self._told.get(key) != trouble:
            self._told[key] = trouble
            self._tell("reap_failed", f"{name} is nobody's and could not be removed ({found.why})", trouble, found)

    def _was_taken_up(self, found: Found) -> bool:
        """Others are removed first, which may take minutes: meanwhile another job of the name may have adopted it."""
        return found.job is not None and not self._is_settled(found.job)

    def _tell(self, kind: str, text: str, why: str, found: Found) -> None:
        self._announce(Event(FLEET, kind, text, why, {**_fields(found.resource), "job": found.job}))


def _fields(resource: Resource) -> dict[str, Scalar | None]:
    match resource:
        case PoolInfo():
            return {"cluster": resource.ref.cluster, "pool": resource.ref.pool, "zone": resource.zone}
        case ClusterInfo():
            return {"cluster": resource.name, "location": resource.location}
        case MachineInfo():
            return {"machine": resource.name, "zone": resource.zone}
        case _:
            assert_never(resource)
