"""`fleet.<cluster>.wanted`: how many workers each cluster was told to keep for each job, for whoever comes after."""

import asyncio
from collections.abc import Callable

from messages import subjects
from messages.decoding import Undecodable, decode, encode_readable
from messages.ids import ClusterName, JobName
from runtime.bus import Bucket
from runtime.errors import BusUnavailable
from runtime.logs import logger
from runtime.retry import Backoff

RETRY_FIRST_S = 0.2
RETRY_MOST_S = 5.0

Counts = dict[JobName, int]


class WantedBook:
    def __init__(self, bucket: Bucket, may_act: Callable[[], bool]) -> None:
        self._bucket = bucket
        self._may_act = may_act
        self._written: dict[ClusterName, Counts] = {}
        self._told: dict[ClusterName, Counts] = {}
        """Not yet written."""
        self._noted = asyncio.Event()
        self._log = logger()

    def note(self, cluster: ClusterName, job: JobName, count: int) -> None:
        self._told.setdefault(cluster, {})[job] = count
        self._noted.set()

    async def run(self) -> None:
        backoff = Backoff(RETRY_FIRST_S, RETRY_MOST_S)
        while True:
            await self._noted.wait()
            self._noted.clear()
            try:
                for cluster in tuple(self._told):
                    await self._write(cluster)
                backoff.reset()
            except BusUnavailable as error:
                self._log.warning("wanted_not_saved", error=str(error))
                self._noted.set()
                await backoff.wait()

    async def _write(self, cluster: ClusterName) -> None:
        if cluster not in self._written:
            self._written[cluster] = await self._load(cluster)
        told = dict(self._told[cluster])
        counts = {job: count for job, count in (self._written[cluster] | told).items() if count}
        if counts != self._written[cluster] and self._may_act():
            await self._bucket.put(subjects.wanted_key(cluster), encode_readable(counts, Counts))
            self._written[cluster] = counts
        if self._told[cluster] == told:
            del self._told[cluster]

    async def _load(self, cluster: ClusterName) -> Counts:
        entry = await self._bucket.get(subjects.wanted_key(cluster))
        return read_counts(cluster, entry.value) if entry is not None else {}


def read_counts(cluster: ClusterName, value: bytes) -> Counts:
    """Empty if they cannot be read: each job tells its clusters again what it wants."""
    try:
        return decode(value, Counts)
    except Undecodable as error:
        logger().error("stored_wanted_unreadable", cluster=cluster, error=str(error))
        return {}
