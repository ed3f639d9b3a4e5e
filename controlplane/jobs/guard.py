"""Keeps readable records of live jobs in the bucket: somebody may delete or overwrite keys while the jobs run.

A purge of the whole bucket takes the lease with it: then the term ends, and `backup` restores what it held. This is for
what is lost under a master that keeps the lease. What a master removes itself (`Master.removing`) stays removed.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from controlplane.job import events
from controlplane.jobs import records
from controlplane.jobs.runner import HeldJob
from messages import subjects
from messages.events import Event
from messages.ids import JobName
from runtime.errors import BusUnavailable, Conflict
from runtime.logs import WhyLog, logger

if TYPE_CHECKING:
    from controlplane.master.master import Master

CHECK_S = 5.0
"""Seconds between two looks: a purge leaves nothing that a watch could show."""


class Guard:
    def __init__(self, master: "Master") -> None:
        self._master = master
        self._readable: dict[str, int] = {}
        """The revision of each record that was last found to be readable."""
        self._unseen = WhyLog(logger(epoch=master.epoch), "records_not_looked_at")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.look()
            except BusUnavailable as error:
                self._unseen(str(error))

    async def look(self) -> None:
        """Raises `BusUnavailable`."""
        alive = {name: held for name, held in self._master.jobs.items() if self._is_guarded(name, held)}
        saved = {name for name, held in alive.items() if held.state.saved is not None}
        stored = await self._master.bucket.revisions(subjects.JOB_RECORDS)
        self._readable = {key: revision for key, revision in self._readable.items() if key in stored}
        for name, held in alive.items():
            keys = {subjects.spec_key(name), *([subjects.world_key(name)] if name in saved else [])}
            lost = keys - stored.keys()
            for key in keys & stored.keys():
                if self._readable.get(key) != stored[key] and not await self._is_readable(name, key):
                    lost.add(key)
            if lost and self._is_guarded(name, held):
                await self._restore(name, held, lost)

    async def _is_readable(self, name: JobName, key: str) -> bool:
        entry = await self._master.bucket.get(key)
        if entry is None:
            return False
        try:
            if key == subjects.spec_key(name):
                records.decode_spec(name, entry.value)
            else:
                records.decode_world(name, entry)
        except records.RecordUnreadable:
            return False
        self._readable[key] = entry.revision
        return True

    def _is_guarded(self, name: JobName, held: HeldJob) -> bool:
        """Asked before and after the look: a job that was removed meanwhile has lost nothing."""
        master = self._master
        wanted = master.jobs.get(name) is held and name not in master.removing and (not held.ended or held.unsettled)
        return wanted and master.may_act()

    async def _restore(self, name: JobName, held: HeldJob, lost: set[str]) -> None:
        master = self._master
        logger(job=name).error("records_lost", keys=sorted(lost))
        if subjects.spec_key(name) in lost:
            entry = await master.bucket.get(subjects.spec_key(name))
            revision = entry.revision if entry is not None else 0
            with contextlib.suppress(Conflict):
                await master.bucket.update(subjects.spec_key(name), records.encode_spec(held.state.spec), revision)
        if subjects.world_key(name) in lost:
            master.post(held, events.RecordLost(master.clock.monotonic_s()))
        text = "the stored record of the job was missing or unreadable and is written again"
        master.announce(Event(name, "record_restored", text, f"somebody deleted or changed {', '.join(sorted(lost))}"))
