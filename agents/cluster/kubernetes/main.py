"""The cluster-controller on Kubernetes, from its settings to its exit code. When it stops, its workers go on."""

import asyncio
import importlib.util
import math
import secrets
from pathlib import Path

from agents.cluster.decide import decide
from agents.cluster.effects import ClusterEffect
from agents.cluster.events import BusBack, BusLost, ClusterEvent, Ticked
from agents.cluster.kubernetes.decide import decide as decide_pods
from agents.cluster.kubernetes.events import Ticked as PodsTicked
from agents.cluster.kubernetes.manifest import PodPlan
from agents.cluster.kubernetes.settings import KubernetesSettings
from agents.cluster.kubernetes.shell import PodLoop, PodPlaces, PodShell, PodWatch
from agents.cluster.kubernetes.state import PodRules, Pods
from agents.cluster.record import KnownRecord
from agents.cluster.shell import ClusterShell, refuse_a_second
from agents.cluster.state import ClusterState, Rules, new_cluster
from messages.ids import ClusterName
from messages.subjects import STATE_BUCKET
from runtime.bus import Bus, BusSettings
from runtime.clock import SystemClock
from runtime.errors import UserError
from runtime.first_connection import connect_when_up
from runtime.inbox import Inbox, posting_bus_changes
from runtime.kubernetes.client import KubernetesApi
from runtime.kubernetes.configuration import ApiConfiguration, connected, from_pod_or_kubeconfig
from runtime.logs import logger
from runtime.process import Stop
from runtime.role import RoleLoop

DRAIN_S = 3.0
TRY_AGAIN_S = 1.0


async def main(settings: KubernetesSettings, stop: Stop) -> int:
    return await control(settings, await from_pod_or_kubeconfig(settings.kubeconfig), stop)


async def control(settings: KubernetesSettings, configuration: ApiConfiguration, stop: Stop) -> int:
    clock, inbox = SystemClock(), Inbox[ClusterEvent]()
    cluster = ClusterName(settings.cluster)
    bus = await connect_when_up(
        _bus_settings(settings), stop.asked, posting_bus_changes(inbox, clock, BusBack, BusLost)
    )
    if bus is None:
        return 0
    try:
        await _outwait_another(bus, cluster, settings.takeover_s)
        async with connected(configuration, f"tradewind-cluster-controller/{cluster}") as api:
            await _control(settings, api, bus, inbox, stop)
    finally:
        await bus.drain(DRAIN_S)
    return 0


async def _control(
    settings: KubernetesSettings, api: KubernetesApi, bus: Bus, inbox: Inbox[ClusterEvent], stop: Stop
) -> None:
    clock, cluster = SystemClock(), ClusterName(settings.cluster)
    incarnation = secrets.token_hex(3)
    record = KnownRecord(await bus.bucket(STATE_BUCKET), cluster, incarnation)
    known = await record.load()
    rules = Rules(
        max_workers=settings.max_workers, end_grace_s=settings.end_within_s, lost_after_s=settings.lost_after_s
    )
    state = new_cluster(cluster, incarnation, settings.region, clock.monotonic_s(), known, rules, synced=False)
    async with asyncio.TaskGroup() as tasks:
        expected = tuple(place.uid for place in known.places) if known is not None else ()
        plan, pods = plan_of(settings), Pods(PodRules(hostless_s=settings.hostless_s), expected)
        pod_shell = PodShell(api, plan, inbox.post, clock)
        pod_loop: PodLoop = RoleLoop("pods", pods, decide_pods, pod_shell, PodsTicked, clock)
        places = PodPlaces(pod_loop, clock)
        shell = ClusterShell(cluster, bus, record, places, inbox, clock)
        loop: RoleLoop[ClusterState, ClusterEvent, ClusterEffect] = RoleLoop(
            "cluster", state, decide, shell, Ticked, clock, [shell.on_decision]
        )
        inbox.open(loop.post)
        await shell.listen()
        own = [
            tasks.create_task(loop.run(), name="cluster/loop"),
            tasks.create_task(bus.run(), name="cluster/bus"),
            tasks.create_task(shell.guard_record(), name="cluster/record"),
            tasks.create_task(pod_loop.run(), name="cluster/pods"),
            tasks.create_task(PodWatch(api, plan, pod_loop.post, clock).run(), name="cluster/kubernetes"),
        ]
        logger(cluster=cluster).info("cluster_controller_started", incarnation=incarnation)
        await stop.wait()
        for task in own:
            task.cancel()


def plan_of(settings: KubernetesSettings) -> PodPlan:
    return PodPlan(
        cluster=ClusterName(settings.cluster),
        namespace=settings.namespace,
        image=settings.image,
        worker_argv=settings.worker_argv,
        host_package=str(_host_file(settings).parent.parent),
        region=settings.region,
        pull_policy=settings.pull_policy,
        pull_secrets=settings.pull_secret_names,
        taints=settings.taints,
        grace_s=math.ceil(settings.shutdown_grace_s),
        notice_s=settings.notice_s,
        worker_account=settings.worker_account,
        nats_url=settings.nats_url,
        bus_secret=settings.bus_secret,
        has_credentials=settings.bus_secret is not None and settings.nats_credentials is not None,
    )


def _host_file(settings: KubernetesSettings) -> Path:
    """Controller and agents have the same image, so what is here is also there."""
    if settings.host_file is not None:
        return Path(settings.host_file)
    found = importlib.util.find_spec("tradewind")
    for folder in (found.submodule_search_locations if found is not None else None) or ():
        file = Path(folder) / "host" / "__main__.py"
        if file.is_file():
            return file
    hint = "say with TRADEWIND_HOST_FILE where it is in the image of the agents"
    raise UserError("The host (tradewind/host) is not installed beside this controller", hint)


async def _outwait_another(bus: Bus, cluster: ClusterName, within_s: float) -> None:
    """One that is being replaced may still be on its way out."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while True:
        try:
            await refuse_a_second(bus, cluster)
        except UserError:
            if loop.time() >= until_s:
                raise
            await asyncio.sleep(TRY_AGAIN_S)
        else:
            return


def _bus_settings(settings: KubernetesSettings) -> BusSettings:
    return BusSettings(
        url=settings.nats_url,
        name=f"cluster/{settings.cluster}",
        connect_timeout_s=settings.connect_timeout_s,
        credentials=settings.nats_credentials,
    )
