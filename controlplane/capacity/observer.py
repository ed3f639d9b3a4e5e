"""The observer of the cloud. It reads machines, prices, clusters and pools at a bounded rate for all parts.

The number of calls does not grow with the number of jobs. Ledger and markets follow the same looks with `next`, so that
budget and plan get the prices of the same look. A request for clusters, machines or prices returns what was read
after the request. Changes of the cloud bypass the observer and do not wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from controlplane.clouds.interface import Cloud, ClusterInfo, MachineInfo, MarketPrice
from controlplane.clouds.observations import Look, look_at
from controlplane.clouds.outcomes import Refused, Unreachable
from messages.events import FLEET, Event
from messages.ids import ClusterName
from runtime import causes
from runtime.clock import Clock

T = TypeVar("T")

EVERY_S = 1.0
"""Minimum seconds between the starts of two looks."""
LIST_EVERY_S = 0.25
"""Minimum seconds between the starts of two listings. It is short, because a new allocator waits for a listing."""

Clusters = Sequence[ClusterInfo] | Unreachable | Refused
OnListing = Callable[[Sequence[ClusterInfo]], None]


class Observer:
    def __init__(
        self,
        cloud: Cloud,
        clock: Clock,
        on_listing: OnListing = lambda clusters: None,
        *,
        every_s: float = EVERY_S,
    ) -> None:
        """`on_listing` gets each successful listing."""
        self._cloud = cloud
        self._clock = clock
        self._on_listing = on_listing
        self._newest: Look | None = None
        self._changed = asyncio.Condition()
        self._looks = _SharedRead(self._look, clock, every_s, "cloud/look")
        self._listings = _SharedRead(self._list, clock, min(every_s, LIST_EVERY_S), "cloud/listing")

    async def run(self) -> None:
        """Look repeatedly until cancelled."""
        while True:
            await self._looks.get()

    async def next(self, after: int) -> Look:
        async with self._changed:
            await self._changed.wait_for(lambda: self._newest is not None and self._newest.number > after)
            assert self._newest is not None
            return self._newest

    async def clusters(self) -> Clusters:
        return await self._listings.get()

    async def machines(self) -> Sequence[MachineInfo] | Unreachable | Refused:
        return (await self._looks.get()).machines

    async def market(self) -> Sequence[MarketPrice] | Unreachable | Refused:
        return (await self._looks.get()).prices

    async def close(self) -> None:
        await self._looks.close()
        await self._listings.close()

    async def _look(self) -> Look:
        number = self._newest.number + 1 if self._newest is not None else 1
        look = await look_at(self._cloud, self._clock.wall_s(), number)
        async with self._changed:
            self._newest = look
            self._changed.notify_all()
        return look

    async def _list(self) -> Clusters:
        found = await self._cloud.clusters()
        if not isinstance(found, Unreachable | Refused):
            self._on_listing(found)
        return found


class Advice:
    """Announces a cloud's advice about a cluster once."""

    def __init__(self, announce: Callable[[Event], None]) -> None:
        self._announce = announce
        self._reported: dict[ClusterName, str] = {}

    def see(self, clusters: Sequence[ClusterInfo]) -> None:
        for cluster in clusters:
            known = self._reported.get(cluster.name, "")
            self._reported[cluster.name] = cluster.advice
            if cluster.advice and cluster.advice != known:
                text = f"cluster {cluster.name} needs attention"
                self._announce(Event(FLEET, "cluster_advice", text, cluster.advice, {"cluster": cluster.name}))


class _SharedRead(Generic[T]):
    """A read that runs once at a time. Requests before it starts share it; later requests share the next read."""

    def __init__(self, read: Callable[[], Awaitable[T]], clock: Clock, every_s: float, name: str) -> None:
        self._read = read
        self._clock = clock
        self._every_s = every_s
        self._name = name
        self._waiting: asyncio.Task[T] | None = None
        """The next read, which has not started."""
        self._last: asyncio.Task[T] | None = None
        self._began_s = float("-inf")

    async def get(self) -> T:
        if self._waiting is None:
            with causes.caused_by(None):  # several requests share the read
                self._waiting = asyncio.create_task(self._once(self._last), name=self._name)
        return await asyncio.shield(self._waiting)

    async def close(self) -> None:
        tasks = [task for task in (self._waiting, self._last) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _once(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        pause_s = self._began_s + self._every_s - self._clock.monotonic_s()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        self._last, self._waiting = self._waiting, None
        self._began_s = self._clock.monotonic_s()
        return await self._read()
