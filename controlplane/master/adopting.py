"""How jobs come to a master: made by people, read from the records at its start, or found in them later."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from controlplane.job.state import Job, adopted_job, new_job
from controlplane.master import records
from controlplane.master.progress import ProgressTracker
from controlplane.master.refusals import HandedOver, JobExists, SpecRefused
from messages import subjects
from messages.decoding import Unreadable
from messages.ids import JobName
from messages.jobs import JobSpec
from runtime.bus import Bucket, Entry
from runtime.errors import BusUnavailable, Conflict
from runtime.logs import logger

if TYPE_CHECKING:
    from controlplane.master.master import Master

ADOPT_RETRY_S = 1.0


class Adopting:
    def __init__(self, master: "Master", patient: Bucket) -> None:
        """`patient`: the master's bucket with longer timeouts, for the start."""
        self.being_made: set[JobName] = set()
        self.unreadable: dict[JobName, str] = {}
        """Jobs whose records cannot be read, and why."""
        self._master = master
        self._patient = patient
        self._log = logger(epoch=master.epoch)

    async def make(self, spec: JobSpec) -> None:
        """Raises `JobExists`, `SpecRefused`, `HandedOver` and `BusUnavailable`."""
        name, bucket = JobName(spec.name), self._master.bucket
        try:
            value = records.encode_spec(spec)
        except Unreadable as error:
            raise SpecRefused((str(error),)) from error
        if self._master.knows(name):
            raise JobExists(name)
        self.being_made.add(name)
        try:
            if await bucket.get(subjects.spec_key(name)) is None:
                await records.remove_leavings(bucket, name)
                await records.remove_words(self._master.bus, name)
            await bucket.create(subjects.spec_key(name), value)
            if self._master.is_over:
                raise HandedOver(name)
            self._master.hold(self._new_job(spec), revision=0)
        except Conflict:
            raise JobExists(name) from None
        finally:
            self.being_made.discard(name)

    async def adopt_all(self) -> None:
        """All that the records tell of; and from then on whatever comes to them."""
        for key, entry in (await self._patient.entries(subjects.JOB_SPECS)).items():
            name = subjects.parse_spec_key(key)
            if name is not None:
                await self._adopt(name, entry.value)
        await self._patient.watch(subjects.JOB_SPECS, self._on_spec)

    def again(self, name: JobName) -> None:
        self._master.soon(self._readopt(name), name)

    async def _adopt(self, name: JobName, value: bytes, progress: ProgressTracker | None = None) -> None:
        try:
            spec = records.decode_spec(name, value)
            stored = await records.read_world(self._patient, name)
        except records.RecordUnreadable as error:
            self._log.error("stored_job_unreadable", job=name, error=str(error))
            self.unreadable[name] = str(error)
            return
        self.unreadable.pop(name, None)
        if stored is None:
            job = replace(self._new_job(spec), is_submission_known=False)
            self._master.hold(job, revision=0, progress=progress)
            return
        master = self._master
        clock, record = master.clock, stored.record
        age_s = clock.wall_s() - record.submitted_at
        job = adopted_job(spec, record, epoch=master.epoch, at_s=clock.monotonic_s(), age_s=age_s)
        self._log.info("job_adopted", job=name, phase=job.record.phase, generation=job.record.generation)
        master.hold(job, stored.revision, progress)

    def _new_job(self, spec: JobSpec) -> Job:
        clock = self._master.clock
        return new_job(spec, epoch=self._master.epoch, at_s=clock.monotonic_s(), submitted_at=clock.wall_s())

    async def _readopt(self, name: JobName) -> None:
        """The master before this one wrote the record after it was read here: begin again from what it wrote."""
        held = self._master.jobs.get(name)
        if held is None:
            return
        self._log.warning("job_adopted_again", job=name)
        await held.stop()
        await self._adopt_from_bus(name, held.progress)

    async def _adopt_from_bus(self, name: JobName, progress: ProgressTracker | None = None) -> None:
        while True:
            try:
                entry = await self._patient.get(subjects.spec_key(name))
                if entry is not None:
                    await self._adopt(name, entry.value, progress)
                return
            except BusUnavailable as error:
                self._log.warning("job_not_adopted", job=name, error=str(error), again_in_s=ADOPT_RETRY_S)
                await asyncio.sleep(ADOPT_RETRY_S)

    def _on_spec(self, key: str, entry: Entry | None) -> None:
        """A job that was made by a master which has just ended, after this one had looked."""
        name = subjects.parse_spec_key(key)
        if name is not None and entry is None:
            self.unreadable.pop(name, None)
        if name is None or entry is None or self._master.knows(name):
            return
        self.being_made.add(name)
        self._master.soon(self._adopt_found(name), name)

    async def _adopt_found(self, name: JobName) -> None:
        try:
            await self._adopt_from_bus(name)
        finally:
            self.being_made.discard(name)
