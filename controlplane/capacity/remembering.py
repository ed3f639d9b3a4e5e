"""The memory of zones: the leader reads it at the start, learns from the states of allocators, and writes it.

Nothing waits for the memory. It examines the allocators' states a moment later and writes each changed zone separately
some seconds later. Failed reads and writes are retried; until a read succeeds, plans use priors.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from controlplane.allocator.state import Allocator
from controlplane.capacity.zone_observations import Watch, observe
from controlplane.catalog import memory_records
from controlplane.catalog.memory import Memory, Observation, learn
from messages.decoding import NotStorable
from messages.ids import JobName
from messages.subjects import memory_key
from runtime.backoff import pauses
from runtime.bus import Bucket
from runtime.clock import Clock
from runtime.errors import BusUnavailable
from runtime.logs import WhyLog, logger

OBSERVE_S = 0.5
SAVE_S = 10.0
STATES_AT_MOST = 10_000
READ_FIRST_S = 0.5
READ_MOST_S = 30.0


class Remembering:
    def __init__(
        self,
        bucket: Bucket,
        clock: Clock,
        may_act: Callable[[], bool],
        *,
        observe_s: float = OBSERVE_S,
        save_s: float = SAVE_S,
    ) -> None:
        self.memory = Memory()
        self._bucket = bucket
        self._clock = clock
        self._may_act = may_act
        self._observe_s = observe_s
        self._save_s = save_s
        self._watches: dict[JobName, Watch] = {}
        self._states: deque[tuple[JobName, float, Allocator]] = deque(maxlen=STATES_AT_MOST)
        """States that were not examined yet, with their job and monotonic time."""
        self._is_read = False
        self._dirty: set[str] = set()
        """Zones with observations that were not written yet."""
        self._unread = WhyLog(logger(), "memory_not_read")
        self._unsaved = WhyLog(logger(), "memory_not_saved")

    def see(self, job: JobName, allocator: Allocator) -> None:
        self._states.append((job, self._clock.monotonic_s(), allocator))

    def forget(self, job: JobName) -> None:
        """Examine the job's states a last time and drop them; its allocator has ended."""
        if self._is_read:
            self._look()
        self._states = deque((each for each in self._states if each[0] != job), maxlen=STATES_AT_MOST)
        self._watches.pop(job, None)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._read()
        saved_s = self._clock.monotonic_s()
        while True:
            self._look()
            if self._dirty and self._clock.monotonic_s() - saved_s >= self._save_s:
                saved_s = self._clock.monotonic_s()
                await self.save()
            await asyncio.sleep(self._observe_s)

    async def save(self) -> None:
        for zone in sorted(self._dirty):
            if not self._may_act():
                return
            # Observations that come during the write mark the zone again.
            self._dirty.discard(zone)
            try:
                await self._bucket.put(memory_key(zone), memory_records.encode_zone(self.memory, zone))
            except BusUnavailable as error:
                self._dirty.add(zone)
                self._unsaved(str(error))
                return
            except NotStorable as error:
                self._unsaved(f"{zone}: {error}")

    async def _read(self) -> None:
        """Read the memory. States of allocators wait until it is read."""
        for pause_s in pauses(READ_FIRST_S, READ_MOST_S):
            try:
                entries = await self._bucket.entries(memory_key())
            except BusUnavailable as error:
                self._unread(str(error))
                await asyncio.sleep(pause_s)
                continue
            self.memory, problems = memory_records.decode({key: entry.value for key, entry in entries.items()})
            for problem in problems:
                logger().warning("memory_unreadable", why=problem)
            self._is_read = True
            return

    def _look(self) -> None:
        wall_s = self._clock.wall_s() - self._clock.monotonic_s()
        while self._states:
            job, at_s, allocator = self._states.popleft()
            self._watches[job], seen = observe(self._watches.get(job, Watch()), allocator, at_s, wall_s + at_s)
            for observation in seen:
                self._learn(observation)

    def _learn(self, observation: Observation) -> None:
        self.memory = learn(self.memory, observation)
        self._dirty.add(observation.zone)
