"""The jobs of this process's last term, in memory. If the bus loses its data, they are written to it again.

The origin of the bucket shows that data is lost or purged, so it is read: the watch of the lease may report a loss
too late, and reports no purge. Once another master leads on the data of the term, its records are newer and the copy
here is dropped.
"""

import asyncio

from controlplane.jobs import records
from controlplane.jobs.records import RememberedJob
from messages import subjects
from runtime.bus import Bucket
from runtime.errors import BusUnavailable
from runtime.logs import logger

RETRY_S = 1.0

Jobs = tuple[RememberedJob, ...]


class JobBackup:
    def __init__(self) -> None:
        self._jobs: Jobs = ()
        self._origin: str | None = None
        """Origin of the data that has the jobs: of their term, or where they were written again since."""
        self._term_origin: str | None = None
        """Origin of the data of the current term; None between terms."""
        self._other_leads = False
        self._due = asyncio.Event()
        self._settling = asyncio.Lock()

    async def begin_term(self, bucket: Bucket) -> None:
        """Returns after lost jobs are written again. Raises `BusUnavailable`."""
        self._term_origin = await self.settle(bucket)

    def end_term(self, jobs: Jobs | None) -> None:
        """`jobs` is None if the term ended before its jobs were known."""
        if jobs is not None:
            self._jobs, self._origin = jobs, self._term_origin
        self._term_origin = None
        self._reconsider()

    def see_leader(self, *, other: bool) -> None:
        self._other_leads = other
        self._reconsider()

    def bus_forgot(self) -> None:
        self._other_leads = False
        self._reconsider()

    async def run(self, bucket: Bucket) -> None:
        """Until cancelled, writes lost jobs again while another master leads."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self.settle(bucket)
            except BusUnavailable as error:
                logger().warning("jobs_not_written_again", error=str(error), again_in_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
                self._reconsider()

    async def settle(self, bucket: Bucket) -> str:
        """Writes again what this bus has lost, and returns the origin of its data. Raises `BusUnavailable`."""
        async with self._settling:
            origin = await bucket.origin(subjects.ORIGIN_KEY)
            if self._jobs and origin != self._origin:
                logger().warning("bus_lost_its_data", jobs=len(self._jobs))
                for job in self._jobs:
                    await records.write_again(bucket, job)
                # They stay in memory: the bus may lose them again before a master reads them.
                self._origin = origin
            elif self._other_leads:
                self._jobs = ()
            return origin

    def _reconsider(self) -> None:
        if self._jobs and self._term_origin is None:
            self._due.set()
