"""The jobs of this process's last term, for a bus that loses its data: whoever leads there next finds them again.

Only what nobody else has changed since is worth keeping: once another master is seen to lead on the same bus, its
records are the truth, and what is remembered here is dropped.
"""

import asyncio

from controlplane.job.state import Record
from controlplane.master import records
from messages.jobs import JobSpec
from runtime.bus import Bucket
from runtime.errors import BusUnavailable
from runtime.logs import logger

RETRY_S = 1.0

Jobs = tuple[tuple[JobSpec, Record], ...]


class Memory:
    def __init__(self) -> None:
        self._kept: Jobs = ()
        self._in_term = False
        self._other_leads = False
        self._forgot = False
        self._due = asyncio.Event()
        self._writing = asyncio.Lock()

    def begin_term(self) -> None:
        self._in_term = True

    def end_term(self, jobs: Jobs | None) -> None:
        """None if it ended before its jobs were known."""
        self._in_term = False
        if jobs is not None:
            self._kept = () if self._other_leads and not self._forgot else jobs
        self._reconsider()

    def see_leader(self, *, other: bool) -> None:
        self._other_leads = other
        if other and not self._forgot:
            self._kept = ()

    def bus_forgot(self) -> None:
        self._forgot = self._in_term or bool(self._kept)
        self._other_leads = False
        self._reconsider()

    async def run(self, bucket: Bucket) -> None:
        """Until cancelled: writes them again where somebody else leads by now."""
        while True:
            await self._due.wait()
            await self.write_again(bucket)

    async def write_again(self, bucket: Bucket) -> None:
        """If there is need; returns when what had to be written is there."""
        async with self._writing:
            if not self._due.is_set():
                return
            logger().warning("bus_lost_its_data", jobs=len(self._kept))
            for spec, record in self._kept:
                await _write(bucket, spec, record)
            self._kept, self._forgot = (), False
            self._due.clear()

    def _reconsider(self) -> None:
        if self._forgot and not self._in_term:
            self._due.set()


async def _write(bucket: Bucket, spec: JobSpec, record: Record) -> None:
    while True:
        try:
            await records.write_again(bucket, spec, record)
            return
        except BusUnavailable as error:
            logger().warning("job_not_written_again", job=spec.name, error=str(error), again_in_s=RETRY_S)
            await asyncio.sleep(RETRY_S)
