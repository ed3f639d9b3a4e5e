"""The whole way on a simulated region: its scheduler places the pods, its kubelet runs agent and host as processes."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from agents.clouds.gke.cloud import CLOUD as GKE
from agents.clouds.gke.metadata import MAINTENANCE_WHY
from agents.cluster.kubernetes.main import control
from agents.cluster.kubernetes.manifest import GPU_RESOURCE
from agents.cluster.kubernetes.settings import KubernetesSettings
from agents.notice.settings import NoticeSettings
from messages import subjects
from messages.clusters import ClusterHeartbeat, KeepWorkers, NodeObservation, Presence, WorkerTemplate
from messages.ids import Epoch
from messages.jobs import Pod
from messages.labels import JOB_LABEL, POOL_LABEL
from messages.workers import WorkerLeft, WorkerNoticed, WorkerPhase
from runtime.kubernetes.client import KubernetesApi
from runtime.kubernetes.configuration import ApiConfiguration, connected, from_endpoint
from runtime.nats_server import NatsServer
from runtime.process import Stop
from simulator.cloud import tokens
from simulator.region.region import Region
from simulator.region.settings import (
    ClusterRequest,
    MaintenanceEvent,
    NodeRequest,
    PreemptRequest,
    RegionSettings,
    Taint,
)
from tests.conftest import Connect, eventually
from tests.kubernetes.node_clouds import a_daemon
from tests.light import light_torch, torch_with_gpus
from tests.topologies import hear_topologies
from tests.worker.builders import JOB, LOCAL
from tests.worker.fakes import NO_STORE, SECONDS, FakeMaster, a_script

WAITS = "import os, time; print(os.environ['KEY'], os.environ['RANK'], flush=True); time.sleep(600)"
NAMESPACE = "tradewind"


class Site:
    """A region with one cluster, a controller for it, and a master that the test controls."""

    def __init__(self, region: Region, master: FakeMaster, api: KubernetesApi, configuration: ApiConfiguration) -> None:
        self.configuration = configuration
        """How to reach the API, for a client of its own."""
        self.region = region
        self.master = master
        self.api = api
        self.topology: ClusterHeartbeat | None = None

    def hear(self, topology: ClusterHeartbeat) -> None:
        self.topology = topology

    async def add_node(
        self,
        name: str,
        instance: str = "1",
        gpus: int = 0,
        taints: Sequence[Taint] = (),
        labels: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """The address of its metadata server."""
        request = NodeRequest(
            instance_id=f"{name}-{instance}",
            labels={JOB_LABEL: JOB, POOL_LABEL: "spot", **labels},
            taints=[Taint(key=JOB_LABEL, value=JOB, effect="NoSchedule"), *taints],
            capacity={"cpu": "4", "memory": "8Gi", "pods": "20", **({GPU_RESOURCE: str(gpus)} if gpus else {})},
            zone="us-central1-a",
        )
        return (await self.region.clusters.put_node(LOCAL, name, request)).metadata_host

    async def keep(self, count: int, template: WorkerTemplate) -> None:
        command = KeepWorkers(JOB, count, template)
        await self.master.bus.request(subjects.cluster_command(LOCAL), command, 10.0, epoch=Epoch(1))

    def current(self, presence: Presence) -> list[str]:
        workers = self.topology.workers if self.topology is not None else ()
        return [observation.worker for observation in workers if observation.presence is presence]

    def waits(self, why: str) -> bool:
        """Returns True if a worker has not started for this reason."""
        workers = self.topology.workers if self.topology is not None else ()
        return any(observation.presence is Presence.STARTING and why in observation.why for observation in workers)

    def node(self, name: str) -> NodeObservation | None:
        nodes = self.topology.nodes if self.topology is not None else ()
        return next((node for node in nodes if node.node == name), None)


@contextlib.asynccontextmanager
async def a_controller(settings: KubernetesSettings, endpoint: str, region: Region) -> AsyncIterator[None]:
    async def token() -> str:
        return tokens.issue(region.settings.secret, time.time(), 3600.0)

    stop = Stop()
    running = control(settings, from_endpoint(endpoint, token), stop)
    task = asyncio.get_running_loop().create_task(running, name="controller")
    try:
        yield
    finally:
        stop.ask("test")
        await task


@pytest.fixture
async def site(nats_server: NatsServer, connect: Connect) -> AsyncIterator[Site]:
    master = FakeMaster(await connect("master/fake"))
    await master.listen()
    async with Region(RegionSettings(stop_grace_s=0.5, node_monitor_s=0.2)) as region:
        view = await region.clusters.put(LOCAL, ClusterRequest())

        async def token() -> str:
            return tokens.issue(region.settings.secret, time.time(), 3600.0)

        async with connected(from_endpoint(view.endpoint, token), "test") as api:
            made = Site(region, master, api, from_endpoint(view.endpoint, token))
            await hear_topologies(master.bus, LOCAL, made.hear)
            await api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            settings = KubernetesSettings(
                cluster=LOCAL,
                nats_url=nats_server.url,
                connect_timeout_s=SECONDS,
                node_taints="team=research:NoSchedule,dedicated=:NoExecute",
            )
            async with a_controller(settings, view.endpoint, region):
                await eventually(lambda: made.topology, SECONDS, "the controller")
                yield made


async def test_a_job_with_an_image_of_its_own_trains_in_a_pod_and_is_noticed_and_lost(
    site: Site, tmp_path: Path
) -> None:
    secret = {"metadata": {"name": "keys"}, "stringData": {"KEY": "of the secret"}}
    await site.api.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    template = WorkerTemplate(
        slots=2,
        env={"PYTHONPATH": light_torch(tmp_path / "light")},
        pod=Pod(image="theirs:1", cpu="1", memory="1Gi", secrets=("keys",)),
    )
    await site.keep(1, template)
    await eventually(lambda: site.current(Presence.STARTING), SECONDS, "a pod that waits for a machine")
    await site.add_node("n1")
    [worker] = await site.master.workers()
    assert site.master.statuses[worker].node == "n1"
    site.master.assigns(1, worker, launch=a_script(tmp_path / "job", WAITS), store=NO_STORE)
    await site.master.until(worker, WorkerPhase.READY, 1)
    for rank in range(2):
        await site.master.until_lines(rank, [f"of the secret {rank}"])

    site.region.clusters.preempt(LOCAL, "n1", PreemptRequest(notice_s=4.0, delete_node=True))
    await eventually(lambda: "notice" in site.master.sent(worker), SECONDS, "the notice")
    await eventually(lambda: (node := site.node("n1")) is None or node.notice_s is not None, SECONDS, "on the node")
    await eventually(lambda: worker in site.current(Presence.GONE), SECONDS, "the worker gone")
    await eventually(lambda: site.node("n1") is None, SECONDS, "the node gone")
    await eventually(lambda: len(site.current(Presence.STARTING)) == 1, SECONDS, "its successor waits")
    await site.add_node("n1", instance="2")
    await eventually(lambda: site.current(Presence.ALIVE), SECONDS, "the successor on the next machine of that name")
    await site.keep(0, template)
    await eventually(lambda: not site.current(Presence.ALIVE), SECONDS, "no worker left")


async def test_a_machine_that_is_lost_without_a_word_takes_its_worker_with_it(site: Site, tmp_path: Path) -> None:
    template = WorkerTemplate(env={"PYTHONPATH": light_torch(tmp_path / "light")})
    await site.keep(2, template)
    await site.add_node("n1")
    await site.add_node("n2")
    workers = await site.master.workers(2)
    [lost] = [worker for worker in workers if site.master.statuses[worker].node == "n1"]
    site.region.clusters.preempt(LOCAL, "n1", PreemptRequest(notice_s=0.0, delete_node=True))
    await eventually(lambda: lost in site.current(Presence.GONE), SECONDS, "the worker gone")
    await eventually(lambda: len(site.current(Presence.STARTING)) == 1, SECONDS, "its successor waits")
    assert "notice" not in site.master.sent(lost)


@pytest.mark.slow
async def test_the_ranks_of_a_pod_with_gpus_find_the_driver_and_keep_their_own_libraries(
    site: Site, tmp_path: Path
) -> None:
    env = {"PYTHONPATH": torch_with_gpus(tmp_path / "torch", 2), "LD_LIBRARY_PATH": "/of/the/job"}
    await site.keep(1, WorkerTemplate(slots=2, env=env, pod=Pod(gpu=True)))
    await site.add_node("n1", gpus=2, taints=[Taint(key=GPU_RESOURCE, value="present", effect="NoSchedule")])
    [worker] = await site.master.workers()
    launch = a_script(tmp_path / "job", "import os; print(os.environ['LD_LIBRARY_PATH'], flush=True)")
    site.master.assigns(1, worker, launch=launch, store=NO_STORE)
    await site.master.until_lines(1, ["/of/the/job:/usr/local/nvidia/lib64"])


@pytest.mark.slow
async def test_a_worker_that_would_train_on_the_cpu_of_a_gpu_node_leaves_and_says_what_to_do(site: Site) -> None:
    await site.keep(1, WorkerTemplate(pod=Pod(gpu=True)))
    await site.add_node("n1", gpus=1)
    await eventually(lambda: any(fact == "left" for _, fact, _ in site.master.facts), SECONDS, "the worker's end")
    left = next(message for _, _, message in site.master.facts if isinstance(message, WorkerLeft))
    assert left.is_unfit
    assert all(value in left.why for value in ("without CUDA", "1 GPU", "pod.gpu", "pod.image"))
    assert all(fact != "joined" for _, fact, _ in site.master.facts)


async def test_workers_are_placed_on_nodes_with_the_taints_of_the_fleet(site: Site, tmp_path: Path) -> None:
    await site.keep(1, WorkerTemplate(env={"PYTHONPATH": light_torch(tmp_path / "light")}))
    taints = [
        Taint(key="team", value="research", effect="NoSchedule"),
        Taint(key="dedicated", effect="NoExecute"),
    ]
    await site.add_node("n1", taints=taints)
    [worker] = await site.master.workers()
    assert site.master.statuses[worker].node == "n1"


@pytest.mark.slow
async def test_the_notice_of_host_maintenance_on_a_gpu_node_leaves_its_worker_almost_an_hour(
    site: Site, tmp_path: Path
) -> None:
    await site.keep(1, WorkerTemplate(env={"PYTHONPATH": light_torch(tmp_path / "light")}))
    metadata_host = await site.add_node("n1", labels={GKE.nodes.accelerator_label: "nvidia-l4"})
    [worker] = await site.master.workers()
    settings = NoticeSettings(node="n1", metadata_host=metadata_host)
    async with a_daemon(settings, site.configuration):
        site.region.clusters.announce_maintenance(LOCAL, "n1", MaintenanceEvent.TERMINATE)
        await eventually(lambda: (node := site.node("n1")) is not None and node.notice_s, SECONDS, "the notice")
    node = site.node("n1")
    assert node is not None and node.notice_s is not None
    assert 3500.0 < node.notice_s <= 3600.0
    assert node.why == MAINTENANCE_WHY
    noticed = next(message for _, _, message in site.master.facts if isinstance(message, WorkerNoticed))
    assert (noticed.worker, noticed.source) == (worker, "node")
    assert 3500.0 < noticed.remaining_s <= 3585.0
    assert worker in site.current(Presence.ALIVE)
    site.master.releases(worker)
    await eventually(lambda: worker in site.current(Presence.GONE), SECONDS, "the worker gone")
    await eventually(lambda: site.waits("didn't match Pod's node affinity"), SECONDS, "a successor without a machine")
