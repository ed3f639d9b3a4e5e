"""Fetches stored worlds for a worker-agent: one at a time, newest first, with bounded retries."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from agents.worker.events import WorkerEvent
from agents.worker.stored import read_stored
from agents.worker.worlds import WorldCache, spread_s
from messages.compact_worlds import WorldReference
from messages.ids import JobName
from messages.worlds import Assignment
from runtime.bus import Bucket
from runtime.errors import BusUnavailable
from runtime.logs import logger
from runtime.retry import Backoff

TRIES = 8
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0

Then = Callable[[Assignment], WorkerEvent]


@dataclass(frozen=True, slots=True)
class _Wanted:
    world: WorldReference
    then: Then
    within_s: float
    """Seconds within which the fetch begins, at a random time."""


class WorldFetcher:
    def __init__(
        self,
        bucket: Bucket,
        job: JobName,
        worlds: WorldCache,
        post: Callable[[WorkerEvent], None],
        on_gone: Callable[[], None],
    ) -> None:
        """`on_gone` is called if a wanted world is no longer stored, because a newer one replaced it."""
        self._bucket = bucket
        self._job = job
        self._worlds = worlds
        self._post = post
        self._on_gone = on_gone
        self._wanted: dict[str, _Wanted] = {}
        self._came = asyncio.Event()
        self._log = logger(job=job)

    def want(self, what: str, world: WorldReference, then: Then, *, at_once: bool) -> None:
        """Requests a world. A newer request of the same kind replaces an older one; the same world is fetched once."""
        before = self._wanted.get(what)
        if before is not None and before.world.generation > world.generation:
            return
        if before is not None and before.world == world and not at_once:
            return
        self._wanted[what] = _Wanted(world, then, 0.0 if at_once else spread_s(world))
        self._came.set()

    async def run(self) -> None:
        """Fetches requested worlds, until cancelled."""
        while True:
            if not self._wanted:
                self._came.clear()
                await self._came.wait()
            for what in list(self._wanted):
                await self._fetch(what)

    async def _fetch(self, what: str) -> None:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while await self._is_interrupted(random.uniform(0.0, self._wanted[what].within_s)):
            continue
        for _ in range(TRIES):
            wanted = self._wanted[what]
            try:
                found = await read_stored(self._bucket, self._job, wanted.world, self._worlds)
            except BusUnavailable as error:
                self._log.info("world_not_fetched", generation=wanted.world.generation, why=str(error))
                await self._is_interrupted(backoff.next_s())
                continue
            if self._wanted[what] is not wanted:
                continue
            del self._wanted[what]
            if found is None:
                self._on_gone()
            else:
                self._post(wanted.then(found))
            return
        self._wanted.pop(what, None)

    async def _is_interrupted(self, pause_s: float) -> bool:
        """Pauses. Returns True early if another world is requested."""
        self._came.clear()
        try:
            async with asyncio.timeout(pause_s):
                await self._came.wait()
        except TimeoutError:
            return False
        return True
