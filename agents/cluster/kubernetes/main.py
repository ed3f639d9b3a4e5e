"""The main function of the cluster-controller on Kubernetes. When it stops, its workers continue."""

import asyncio
import math
from pathlib import Path

from agents.cluster.controller import Opening, opened, start_core
from agents.cluster.kubernetes.decide import decide
from agents.cluster.kubernetes.events import Ticked
from agents.cluster.kubernetes.manifest import PodPlan
from agents.cluster.kubernetes.settings import KubernetesSettings
from agents.cluster.kubernetes.shell import PodLoop, PodPlaces, PodShell, PodWatch
from agents.cluster.kubernetes.state import PodRules, Pods
from agents.cluster.state import Rules
from messages.ids import ClusterName
from runtime.errors import UserError
from runtime.kubernetes.client import KubernetesApi
from runtime.kubernetes.configuration import ApiConfiguration, connected, from_pod_or_kubeconfig
from runtime.logs import logger
from runtime.process import Stop
from runtime.role import RoleLoop
from runtime.settings import bus_settings_of
from tradewind.protocol.host import installed_host


async def main(settings: KubernetesSettings, stop: Stop) -> int:
    return await control(settings, await from_pod_or_kubeconfig(settings.kubeconfig), stop)


async def control(settings: KubernetesSettings, configuration: ApiConfiguration, stop: Stop) -> int:
    cluster = ClusterName(settings.cluster)
    async with opened(cluster, bus_settings_of(settings, f"cluster/{cluster}"), stop, settings.takeover_s) as opening:
        if opening is not None:
            async with connected(configuration, f"tradewind-cluster-controller/{cluster}") as api:
                await _control(settings, opening, api, stop)
    return 0


async def _control(settings: KubernetesSettings, opening: Opening, api: KubernetesApi, stop: Stop) -> None:
    clock, plan = opening.clock, plan_of(settings)
    expected = tuple(place.uid for place in opening.known.places) if opening.known is not None else ()
    pods = Pods(PodRules(hostless_s=settings.hostless_s), expected)
    rules = Rules(
        max_workers=settings.max_workers, end_grace_s=settings.end_within_s, lost_after_s=settings.lost_after_s
    )
    async with asyncio.TaskGroup() as tasks:
        pod_loop: PodLoop = RoleLoop(
            "pods", pods, decide, PodShell(api, plan, opening.inbox.post, clock), Ticked, clock
        )
        core = await start_core(opening, settings.region, rules, PodPlaces(pod_loop, clock), tasks, synced=False)
        own = [
            *core.tasks,
            tasks.create_task(pod_loop.run(), name="cluster/pods"),
            tasks.create_task(PodWatch(api, plan, pod_loop.post, clock).run(), name="cluster/kubernetes"),
        ]
        logger(cluster=opening.cluster).info("cluster_controller_started", incarnation=opening.incarnation)
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
        nodes=settings.nodes,
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
    """Finds the host's file. Controller and agents have the same image, so the path is valid for both."""
    if settings.host_file is not None:
        return Path(settings.host_file)
    file = installed_host()
    if file is not None:
        return file
    hint = "set TRADEWIND_HOST_FILE to its path in the image of the agents"
    raise UserError("The host (tradewind/host) is not installed beside this controller", hint)
