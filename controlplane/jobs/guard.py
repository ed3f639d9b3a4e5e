"""Restores records of live jobs that a person deletes or overwrites while the jobs run.

A purge of the whole bucket also removes the lease: then the term ends, and `backup` restores its jobs. The guard
restores what is lost while the master keeps the lease. Records that a master removes itself (`JobRegistry.removing`)
stay removed.
"""

import asyncio
import contextlib
from collections.abc import Mapping

from controlplane.job import events
from controlplane.jobs import records
from controlplane.jobs.context import TermContext
from controlplane.jobs.registry import JobRegistry
from controlplane.jobs.runner import JobRunner
from controlplane.jobs.worlds import chunk_keys
from messages import subjects
from messages.events import Event
from messages.ids import JobName
from runtime.errors import BusUnavailable, Conflict
from runtime.logs import WhyLog, logger

CHECK_S = 5.0
"""Seconds between checks. The guard polls, because a watch does not report a purge."""


class Guard:
    def __init__(self, context: TermContext, registry: JobRegistry) -> None:
        self._context = context
        self._registry = registry
        self._readable: dict[str, tuple[int, set[str]]] = {}
        """The revision of each record that was last readable, and the keys of its chunks."""
        self._unseen = WhyLog(logger(epoch=context.leadership.epoch), "records_not_looked_at")

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
        alive = {name: runner for name, runner in self._registry.jobs.items() if self._is_guarded(name, runner)}
        saved = {name for name, runner in alive.items() if runner.state.storage.saved is not None}
        stored = await self._context.bucket.revisions(subjects.JOB_RECORDS)
        self._readable = {key: found for key, found in self._readable.items() if key in stored}
        for name, runner in alive.items():
            keys = {subjects.spec_key(name), *([subjects.record_key(name)] if name in saved else [])}
            lost = keys - stored.keys()
            for key in keys & stored.keys():
                if not await self._is_whole(name, key, stored):
                    lost.add(key)
            if lost and self._is_guarded(name, runner):
                await self._restore(name, runner, lost)

    async def _is_whole(self, name: JobName, key: str, stored: Mapping[str, int]) -> bool:
        """True if the key and the chunks that it names are readable."""
        known = self._readable.get(key)
        if known is not None and known[0] == stored[key]:
            return known[1] <= stored.keys()
        entry = await self._context.bucket.get(key)
        if entry is None:
            return False
        chunks: set[str] = set()
        try:
            if key == subjects.spec_key(name):
                records.decode_spec(name, entry.value)
            else:
                chunks = chunk_keys(name, records.decode_record(name, entry).worlds)
        except records.RecordUnreadable:
            return False
        self._readable[key] = entry.revision, chunks
        # A record that was saved after the list may name chunks that are not in the list.
        return entry.revision != stored[key] or chunks <= stored.keys()

    def _is_guarded(self, name: JobName, runner: JobRunner) -> bool:
        """True if the job's records must exist. Checked before and after the list: a job may be removed meanwhile."""
        registry = self._registry
        is_ours = registry.jobs.get(name) is runner and name not in registry.removing
        return is_ours and (not runner.ended or runner.unsettled) and self._context.may_act()

    async def _restore(self, name: JobName, runner: JobRunner, lost: set[str]) -> None:
        bucket = self._context.bucket
        logger(job=name).error("records_lost", keys=sorted(lost))
        if subjects.spec_key(name) in lost:
            entry = await bucket.get(subjects.spec_key(name))
            revision = entry.revision if entry is not None else 0
            with contextlib.suppress(Conflict):
                await bucket.update(subjects.spec_key(name), records.encode_spec(runner.state.spec), revision)
        if subjects.record_key(name) in lost:
            self._registry.post(runner, events.RecordLost(self._context.now_s()))
        text = "the stored record of the job was missing or unreadable; it is written again"
        self._context.announce(Event(name, "record_restored", text, f"deleted or changed: {', '.join(sorted(lost))}"))
