"""A real controller on a real bus, against a stand-in API server and, where TRADEWIND_TEST_KUBECONFIG names one, a real
one. Both are bare: the tests play scheduler, kubelet and cloud."""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import kubernetes_asyncio.client
import msgspec
import pytest

from agents.cluster.kubernetes.main import control
from agents.cluster.kubernetes.settings import KubernetesSettings
from messages import subjects
from messages.clusters import (
    Answer,
    ClusterHeartbeat,
    KeepWorkers,
    NodeObservation,
    Presence,
    RemoveWorkers,
    WorkerObservation,
    WorkerTemplate,
)
from messages.codec import Received
from messages.ids import ClusterName, Epoch, JobName, WorkerId
from messages.workers import WorkerHeartbeat, WorkerNoticed, WorkerPhase, WorkerStatus
from runtime.bus import Bus
from runtime.kubernetes.client import KubernetesApi
from runtime.kubernetes.configuration import ApiConfiguration, connected, from_endpoint, from_kubeconfig
from runtime.nats_server import NatsServer
from runtime.process import Stop
from simulator.cloud import tokens
from simulator.region.region import Region
from simulator.region.settings import ClusterRequest, RegionSettings
from tests.conftest import Connect, eventually
from tests.kubernetes.ground import JOB, WITHIN_S, WORKER_ACCOUNT, Ground
from tests.kubernetes.meddler import Meddler
from tests.topologies import hear_topologies

CLUSTER = ClusterName("here")
KUBECONFIG = os.environ.get("TRADEWIND_TEST_KUBECONFIG")
SERVERS = ["simulator", *(["real"] if KUBECONFIG else [])]
BEAT_EVERY_S = 0.3


class SimulatedServer:
    """The simulator's API server without its controllers, and the tokens that it takes."""

    def __init__(self, region: Region, endpoint: str) -> None:
        self.region = region
        self.endpoint = endpoint

    async def token(self, lifetime_s: float = 3600.0) -> str:
        return tokens.issue(self.region.settings.secret, time.time(), lifetime_s)


@contextlib.asynccontextmanager
async def simulated_server() -> AsyncIterator[SimulatedServer]:
    async with Region(RegionSettings(bookmark_s=1.0)) as region:
        view = await region.clusters.put(CLUSTER, ClusterRequest(controllers=False))
        yield SimulatedServer(region, view.endpoint)


@pytest.fixture(params=SERVERS)
async def administrator(request: pytest.FixtureRequest) -> AsyncIterator[ApiConfiguration]:
    """The configuration of a client with all rights."""
    if request.param == "real":
        assert KUBECONFIG is not None
        yield await from_kubeconfig(KUBECONFIG)
        return
    async with simulated_server() as server:
        yield from_endpoint(server.endpoint, server.token)


@pytest.fixture
async def ground(administrator: ApiConfiguration) -> AsyncIterator[Ground]:
    async with connected(administrator, "tradewind-test") as api:
        made = Ground(api)
        await made.prepare()
        yield made
        await made.clean()


@pytest.fixture
async def meddler(administrator: ApiConfiguration, ground: Ground) -> AsyncIterator[Meddler]:
    library: Any = kubernetes_asyncio.client
    async with library.ApiClient(administrator.library) as api, Meddler(api) as made:
        yield made


@pytest.fixture
async def through(meddler: Meddler) -> AsyncIterator[KubernetesApi]:
    """A client whose way to the server leads through the meddler."""
    async with connected(meddled(meddler), "tradewind-test") as api:
        yield api


def meddled(meddler: Meddler) -> ApiConfiguration:
    async def token() -> str:
        return "unused"

    return from_endpoint(meddler.url, token)


class Bench:
    """Starts controllers, speaks to them as a master and as workers would, and hears what they tell."""

    def __init__(self, bus: Bus, settings: KubernetesSettings, ground: Ground, meddler: Meddler) -> None:
        self.bus = bus
        self.settings = settings
        self.ground = ground
        self.meddler = meddler
        self.topologies: list[ClusterHeartbeat] = []
        self.notices: list[WorkerNoticed] = []
        self.controllers: list[asyncio.Task[int]] = []
        self._beating: dict[str, asyncio.Task[None]] = {}
        self._seqs: dict[WorkerId, int] = {}

    async def listen(self) -> None:
        await hear_topologies(self.bus, CLUSTER, self.topologies.append)
        await self.bus.subscribe(subjects.worker_fact(CLUSTER, None, "notice"), self._on_notice)

    def start(self, configuration: ApiConfiguration | None = None, **changed: object) -> Stop:
        settings = msgspec.structs.replace(self.settings, **changed)
        stop = Stop()
        running = control(settings, configuration or meddled(self.meddler), stop)
        self.controllers.append(asyncio.get_running_loop().create_task(running, name="controller"))
        return stop

    async def start_and_hear(self, configuration: ApiConfiguration | None = None, **changed: object) -> Stop:
        heard = len(self.topologies)
        stop = self.start(configuration, **changed)
        await eventually(lambda: len(self.topologies) > heard, what="a topology of the new controller")
        return stop

    async def end(self, stop: Stop) -> None:
        stop.ask("test")
        async with asyncio.timeout(WITHIN_S):
            assert await self.controllers[-1] == 0

    async def kill(self) -> None:
        """The newest controller, in the middle of whatever it does."""
        self.controllers[-1].cancel()
        await asyncio.wait({self.controllers[-1]}, timeout=WITHIN_S)

    async def keep(self, count: int, *, epoch: int = 1, template: WorkerTemplate | None = None) -> Answer:
        return await self.ask(KeepWorkers(JOB, count, template or WorkerTemplate()), epoch)

    async def ask(self, command: KeepWorkers | RemoveWorkers, epoch: int = 1) -> Answer:
        received = await self.bus.request(subjects.cluster_command(CLUSTER), command, 10.0, epoch=Epoch(epoch))
        assert isinstance(received.message, Answer)
        return received.message

    def speak(self, uid: str, *, job: JobName = JOB) -> WorkerId:
        """Its worker lives from now on."""
        worker = WorkerId(f"{uid}-{secrets.token_hex(2)}")
        self._beating[uid] = asyncio.get_running_loop().create_task(self._beat(worker, job), name=f"beat/{uid}")
        return worker

    def fall_silent(self, uid: str) -> None:
        self._beating.pop(uid).cancel()

    def observations(self, presence: Presence | None = None) -> dict[WorkerId, WorkerObservation]:
        """In the newest topology."""
        workers = self.topologies[-1].workers if self.topologies else ()
        return {observation.worker: observation for observation in workers if presence in (None, observation.presence)}

    def observation(self, uid: str) -> WorkerObservation | None:
        """The observation of a place that is not gone."""
        found = (observation for worker, observation in self.observations().items() if worker.rpartition("-")[0] == uid)
        return next((observation for observation in found if observation.presence is not Presence.GONE), None)

    def gone(self, uid: str) -> WorkerObservation | None:
        found = (
            observation
            for worker, observation in self.observations(Presence.GONE).items()
            if worker.rpartition("-")[0] == uid
        )
        return next(found, None)

    def node(self, name: str) -> NodeObservation | None:
        nodes = self.topologies[-1].nodes if self.topologies else ()
        return next((observation for observation in nodes if observation.node == name), None)

    async def clean(self) -> None:
        tasks = {*self.controllers, *self._beating.values()}
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _beat(self, worker: WorkerId, job: JobName) -> None:
        while True:
            seq = self._seqs[worker] = self._seqs.get(worker, 0) + 1
            status = WorkerStatus(worker, CLUSTER, job, seq, WorkerPhase.IDLE)
            self.bus.publish(subjects.worker_heartbeat(CLUSTER, worker), WorkerHeartbeat(status))
            await asyncio.sleep(BEAT_EVERY_S)

    def _on_notice(self, _subject: str, received: Received) -> None:
        if isinstance(received.message, WorkerNoticed):
            self.notices.append(received.message)


def settings_for(ground: Ground, nats_server: NatsServer) -> KubernetesSettings:
    return KubernetesSettings(
        cluster=CLUSTER,
        namespace=ground.namespace,
        worker_account=WORKER_ACCOUNT,
        nats_url=nats_server.url,
        connect_timeout_s=20.0,
        image="tradewind:test",
        lost_after_s=0.5,
    )


def a_kubeconfig(server: str, user: dict[str, str]) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


@pytest.fixture
async def bench(nats_server: NatsServer, connect: Connect, ground: Ground, meddler: Meddler) -> AsyncIterator[Bench]:
    settings = settings_for(ground, nats_server)
    made = Bench(await connect("master/test"), settings, ground, meddler)
    await made.listen()
    yield made
    await made.clean()
