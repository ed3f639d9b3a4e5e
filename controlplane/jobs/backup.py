"""The jobs of this process's last term, for a bus that loses its data: the next leader there finds them again.

Lost or purged data is known by the origin of its bucket, which is asked: what the watch of the lease tells of a loss
may come after this process leads there, and of a purge it tells nothing. Only what nobody else has changed since is
worth keeping: once another master leads on the data of the term, its records are the truth, and what is remembered here
is dropped.
"""

import asyncio

from controlplane.jobs import records
from controlplane.jobs.records import Kept
from messages import subjects
from runtime.bus import Bucket
from runtime.errors import BusUnavailable
from runtime.logs import logger

RETRY_S = 1.0

Jobs = tuple[Kept, ...]


class JobBackup:
    def __init__(self) -> None:
        self._kept: Jobs = ()
        self._kept_where: str | None = None
        """Origin of the data that has them: where they were led, or were written again since."""
        self._term_where: str | None = None
        """The same for the present term; None while there is none."""
        self._other_leads = False
        self._due = asyncio.Event()
        self._settling = asyncio.Lock()

    async def begin_term(self, bucket: Bucket) -> None:
        """Returns when what the bus had to be given again is there. Raises `BusUnavailable`."""
        self._term_where = await self.settle(bucket)

    def end_term(self, jobs: Jobs | None) -> None:
        """None if it ended before its jobs were known."""
        if jobs is not None:
            self._kept, self._kept_where = jobs, self._term_where
        self._term_where = None
        self._reconsider()

    def see_leader(self, *, other: bool) -> None:
        self._other_leads = other
        self._reconsider()

    def bus_forgot(self) -> None:
        self._other_leads = False
        self._reconsider()

    async def run(self, bucket: Bucket) -> None:
        """Until cancelled: for a bus where somebody else leads by now."""
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
            where = await bucket.origin(subjects.ORIGIN_KEY)
            if self._kept and where != self._kept_where:
                logger().warning("bus_lost_its_data", jobs=len(self._kept))
                for kept in self._kept:
                    await records.write_again(bucket, kept)
                # Not forgotten yet: this bus, too, may lose them before anybody has read them.
                self._kept_where = where
            elif self._other_leads:
                self._kept = ()
            return where

    def _reconsider(self) -> None:
        if self._kept and self._term_where is None:
            self._due.set()
