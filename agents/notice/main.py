"""The main function of the notice watcher."""

import asyncio
from pathlib import Path

from agents.clouds.interface import Machine, NoticeOptions, NoticeSource
from agents.clouds.registry import cloud_of
from agents.notice.node import NodeAnnotation, read_machine
from agents.notice.notice_file import NoticeFile
from agents.notice.settings import NoticeSettings
from runtime.clock import SystemClock
from runtime.kubernetes.client import KubernetesApi
from runtime.kubernetes.configuration import ApiConfiguration, connected, from_pod_or_kubeconfig
from runtime.logs import logger
from runtime.process import Stop


async def main(settings: NoticeSettings, stop: Stop) -> int:
    return await watch(settings, await from_pod_or_kubeconfig(settings.kubeconfig), stop)


async def watch(settings: NoticeSettings, configuration: ApiConfiguration, stop: Stop) -> int:
    async with connected(configuration, "tradewind-notice") as api, asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(_watch(settings, api), name="notice/watch")
        await stop.wait()
        watching.cancel()
    return 0


async def _watch(settings: NoticeSettings, api: KubernetesApi) -> None:
    """Watches until cancelled. Reads the node first: without the API, a notice could not be written anyway."""
    machine = await read_machine(api, settings.node, cloud_of(settings.cloud).nodes)
    annotation = NodeAnnotation(api, settings.node, machine.boot_id, SystemClock())
    logger(node=settings.node).info("notice_watched", is_spot=machine.is_spot, has_gpus=machine.has_gpus)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(annotation.run(), name="notice/annotation")
        tasks.create_task(source_of(settings, machine).watch(annotation.tell), name="notice/source")


def source_of(settings: NoticeSettings, machine: Machine) -> NoticeSource:
    if settings.notice_file is not None:
        return NoticeFile(Path(settings.notice_file))
    options = NoticeOptions(settings.notice_s, settings.maintenance_s, settings.metadata_host)
    return cloud_of(settings.cloud).notices(machine, options)
