"""The jobs of this process's last term, for a bus that loses its data: whoever leads there next finds them again.

A bus that lost its data is known by when its bucket was made, which is asked: what the watch of the lease tells of it
may come after this process leads there. Only what nobody else has changed since is worth keeping: once another master
is seen to lead on the bus where the term was, its records are the truth, and what is remembered here is dropped.
"""

import asyncio
from datetime import datetime

from controlplane.master import records
from controlplane.master.records import Kept
from runtime.bus import Bucket
from runtime.errors import BusUnavailable
from runtime.logs import logger

RETRY_S = 1.0

Jobs = tuple[Kept, ...]


class JobBackup:
    def __init__(self) -> None:
        self._kept: Jobs = ()
        self._kept_where: datetime | None = None
        """When the bucket was made of the bus that has them: where they were led, or were written again since."""
        self._term_where: datetime | None = None
        """The same for the present term; None while there is none."""
        self._other_leads = False
        self._bus_is_another = False
        """By what the watch told since the last term began, or since they were written again."""
        self._due = asyncio.Event()
        self._settling = asyncio.Lock()

    async def begin_term(self, bucket: Bucket) -> None:
        """Returns when what the bus had to be given again is there. Raises `BusUnavailable`."""
        self._term_where = await self.settle(bucket)
        self._bus_is_another = False

    def end_term(self, jobs: Jobs | None) -> None:
        """None if it ended before its jobs were known."""
        if jobs is not None:
            overtaken = self._other_leads and not self._bus_is_another
            self._kept, self._kept_where = () if overtaken else jobs, self._term_where
        self._term_where = None
        self._reconsider()

    def see_leader(self, *, other: bool) -> None:
        self._other_leads = other
        if other and not self._bus_is_another:
            self._kept = ()
        self._reconsider()

    def bus_forgot(self) -> None:
        self._bus_is_another = True
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

    async def settle(self, bucket: Bucket) -> datetime:
        """Writes again what this bus has lost, and tells which bus it is. Raises `BusUnavailable`."""
        async with self._settling:
            where = await bucket.made_at()
            if self._kept and where != self._kept_where:
                logger().warning("bus_lost_its_data", jobs=len(self._kept))
                for kept in self._kept:
                    await records.write_again(bucket, kept)
                # Not forgotten yet: this bus, too, may lose them before anybody has read them.
                self._kept_where, self._bus_is_another = where, False
            elif self._other_leads:
                self._kept = ()
            return where

    def _reconsider(self) -> None:
        if self._kept and self._term_where is None:
            self._due.set()
