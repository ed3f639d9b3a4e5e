"""A cluster-controller whose places are played workers. The rest is production code.

Heartbeats reach it through the bus, but it does not decode them: it uses the last message that the worker of the same
process sent. Decoding ten thousand messages a second would leave no core for the master that is measured.
"""

import asyncio
import itertools
import secrets
from collections.abc import Callable
from typing import Final

from agents.cluster.controller import Core, Opening, start_core
from agents.cluster.events import AgentEnded, BusBack, BusLost, ClusterEvent, PlaceEnded, PlaceStarted
from agents.cluster.shell import KnownRecord
from agents.cluster.state import Rules
from benchmarks.played.connection import connect
from benchmarks.played.worker import PLAYED, Company, PlayedWorker
from messages import subjects
from messages.clusters import Answer, KeepWorkers, WorkerTemplate
from messages.codec import Received
from messages.envelope import Message
from messages.ids import ClusterName, JobName, WorkerId
from runtime.bus import Bus, BusSettings, Handler, Server, Subscription
from runtime.clock import SystemClock
from runtime.inbox import Inbox, posting_bus_changes

CONNECTING_AT_ONCE: Final = 50
_PLACES: Final = 100_000
_pids: Final = itertools.count(1)


class LightBus(Bus):
    """A bus that delivers heartbeats of the cluster given to `play` without decoding them."""

    async def play(self, company: Company, cluster: ClusterName, port: int, of_job_at_most: int) -> None:
        """Connects for a cluster. It refuses more than its share, because a new job asks its first cluster for all."""
        self.heard = 0
        self._of_job_at_most = of_job_at_most
        self._company = company
        self._subject = subjects.worker_heartbeat(cluster)
        self._handler: Handler = lambda subject, received: None
        self._raw = await connect(port, f"cluster/{cluster}", self._on_heartbeat, company.traffic)

    async def subscribe(self, subject: str, handler: Handler) -> Subscription:
        if subject != self._subject:
            return await super().subscribe(subject, handler)
        self._handler = handler
        self._raw.subscribe(subject)
        await self._raw.settle()
        return Subscription(self._end)

    async def serve(self, subject: str, handler: Server) -> Subscription:
        async def answer(asked: str, received: Received) -> Message:
            message = received.message
            if isinstance(message, KeepWorkers) and message.count > self._of_job_at_most:
                return Answer(ok=False, why=f"{PLAYED}at most {self._of_job_at_most} workers of a job")
            return await handler(asked, received)

        return await super().serve(subject, answer)

    async def _end(self) -> None:
        self._raw.abort()

    def _on_heartbeat(self, subject: bytes, _payload: bytes) -> None:
        self.heard += 1
        received = self._company.sent.get(subject)
        if received is not None:
            self._handler(subject.decode(), received)


class PlayedPlaces:
    """Places of one cluster. The worker of a replacement connects after `replace_s`."""

    def __init__(
        self,
        company: Company,
        cluster: ClusterName,
        region: str,
        port: int,
        replace_s: float,
        tasks: asyncio.TaskGroup,
        post: Callable[[ClusterEvent], None],
        connecting: asyncio.Semaphore,
    ) -> None:
        self._company = company
        self._cluster = cluster
        self._region = region
        self._port = port
        self._replace_s = replace_s
        self._tasks = tasks
        self._post = post
        self._connecting = connecting
        self._clock = SystemClock()
        self._places: dict[str, PlayedWorker] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._places

    def start(self, uid: str, job: JobName, template: WorkerTemplate, departing: frozenset[str]) -> None:
        worker, pid = WorkerId(f"{uid}-{secrets.token_hex(2)}"), next(_pids)
        played = PlayedWorker(
            self._company, worker, self._cluster, self._region, job, pid, lambda: self._gone(uid, f"{PLAYED}it left")
        )
        self._places[uid] = played
        self._post(PlaceStarted(self._clock.monotonic_s(), uid, pid))
        delay_s = self._replace_s if self._company.worlds.get(job) else 0.0
        self._tasks.create_task(self._connect(uid, played, delay_s), name=f"connect/{uid}")

    def recognise(self, uid: str, pid: int) -> bool:
        return False

    async def end(self, uid: str, grace_s: float) -> None:
        self._gone(uid, f"{PLAYED}it was ended")

    def lose(self, worker: WorkerId) -> None:
        """Breaks the connection first, then reports the end of the place to the controller."""
        uid = next(uid for uid, played in self._places.items() if played.status.worker == worker)
        self._gone(uid, f"{PLAYED}its process was killed")

    def _gone(self, uid: str, why: str) -> None:
        played = self._places.pop(uid, None)
        if played is not None:
            played.lose()
            self._company.forget(played)
        now_s = self._clock.monotonic_s()
        self._post(AgentEnded(now_s, uid, why))
        self._post(PlaceEnded(now_s, uid, why))

    async def _connect(self, uid: str, played: PlayedWorker, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        async with self._connecting:
            if uid not in self._places:
                return
            name = f"worker/{played.status.worker}"
            connection = await connect(self._port, name, played.hear, self._company.traffic)
            connection.subscribe(*played.subscriptions())
            await connection.settle()
            if uid not in self._places:
                connection.abort()
                return
            played.connection = connection
            self._company.take(played)
            played.join()


class PlayedCluster:
    def __init__(self, core: Core, bus: LightBus, places: PlayedPlaces) -> None:
        self.core = core
        self.bus = bus
        self.places = places


async def start_cluster(
    company: Company,
    cluster: ClusterName,
    region: str,
    port: int,
    *,
    of_job_at_most: int,
    replace_s: float,
    tasks: asyncio.TaskGroup,
    connecting: asyncio.Semaphore,
) -> PlayedCluster:
    clock, inbox, incarnation = SystemClock(), Inbox[ClusterEvent](), secrets.token_hex(3)
    settings = BusSettings(url=f"nats://127.0.0.1:{port}", name=f"cluster/{cluster}", connect_timeout_s=30.0)
    bus = await LightBus.connect(settings, posting_bus_changes(inbox, clock, BusBack, BusLost))
    assert isinstance(bus, LightBus)
    await bus.play(company, cluster, port, of_job_at_most)
    record = KnownRecord(await bus.bucket(subjects.STATE_BUCKET), cluster, incarnation)
    places = PlayedPlaces(company, cluster, region, port, replace_s, tasks, inbox.post, connecting)
    opening = Opening(cluster, incarnation, bus, record, None, inbox, clock)
    core = await start_core(opening, region, Rules(max_workers=_PLACES, max_places=_PLACES), places, tasks, synced=True)
    return PlayedCluster(core, bus, places)
