"""The reaper that runs with a master: every few minutes, and only while the master leads.

It removes less than a person may: pools of jobs that nobody knows or that have ended, and clusters whose creation
failed; each only when two looks in a row have found it so, and pools only if they were asked for over this bus: another
one has the records of their jobs, or had them. Of the rest it tells.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import assert_never

from controlplane.clouds.interface import Cloud, ClusterInfo, MachineInfo, PoolInfo
from controlplane.clouds.outcomes import Refused, Unreachable
from controlplane.reaper.claims import Claim, Claims, Records
from controlplane.reaper.findings import ELSEWHERE, Clusters, Findings, FleetScope, Found, sort_out
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
NOTHING_FOUND = Findings((), ())
PERSON_HINT = "`tradewind reap` shows it to a person, who may remove it"
MACHINE_HINT = "no pool has it: delete it by hand, as `tradewind reap` says"


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
        look_s: float = LOOK_S,
    ) -> None:
        """`records`: what they say now, raises `BusUnavailable`; `is_settled`: no allocator is at work."""
        self._cloud = cloud
        self._fleet = fleet
        self._records = records
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
        findings = await self._findings()
        elsewhere = [each for each in findings.left if each.why == ELSEWHERE]
        before, self._suspects = self._suspects, frozenset(map(_key, (*findings.orphans, *elsewhere)))
        self._told = {key: why for key, why in self._told.items() if key in self._suspects}
        for each in elsewhere:
            if _key(each) in before:
                self._leave(each)
        confirmed = [each for each in findings.orphans if _key(each) in before]
        turns = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            for each in confirmed:
                tasks.create_task(self._reap(each, turns), name=f"reap/{name_of(each.resource)}")

    async def _findings(self) -> Findings:
        if not self._may_act():
            return NOTHING_FOUND
        inventory = await look(self._cloud)
        if isinstance(inventory, Unreachable | Refused):
            self._unseen(inventory.detail)
            return NOTHING_FOUND
        try:
            records = await self._records()
        except BusUnavailable as error:
            self._unseen(str(error))
            return NOTHING_FOUND
        claims = {**records.claims, **self._unsettled(inventory, records.claims)}
        return sort_out(inventory, claims, self._fleet, self._clock.wall_s(), Clusters.FAILED, records.bus)

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
        name = name_of(found.resource)
        if not trouble:
            self._tell("reaped", f"{name} was removed", found.why, found)
        elif self._is_new(found, trouble):
            text = f"{name} belongs to no live job and could not be removed ({found.why})"
            self._tell("reap_failed", text, trouble, found)

    def _leave(self, found: Found) -> None:
        if self._is_new(found, found.why):
            text = f"{name_of(found.resource)} belongs to no job that is known here, and is left alone"
            self._tell("not_reaped", text, f"{found.why}; {PERSON_HINT}", found)

    def _is_new(self, found: Found, why: str) -> bool:
        is_new = self._told.get(_key(found)) != why
        self._told[_key(found)] = why
        return is_new

    def _was_taken_up(self, found: Found) -> bool:
        """Others are removed first, which may take minutes: meanwhile another job of the name may have adopted it."""
        return found.job is not None and not self._is_settled(found.job)

    def _tell(self, kind: str, text: str, why: str, found: Found) -> None:
        self._announce(Event(FLEET, kind, text, why, {**_fields(found.resource), "job": found.job}))


def _key(found: Found) -> Key:
    return key_of(found.resource)


def _fields(resource: Resource) -> dict[str, Scalar | None]:
    match resource:
        case PoolInfo():
            return {"cluster": resource.ref.cluster, "pool": resource.ref.pool, "zone": resource.kind.zone}
        case ClusterInfo():
            return {"cluster": resource.name, "location": resource.location}
        case MachineInfo():
            return {"machine": resource.name, "zone": resource.kind.zone}
        case _:
            assert_never(resource)
