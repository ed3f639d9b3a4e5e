"""The notice daemon, from its settings to its exit code."""

import asyncio
from pathlib import Path

from agents.notice.node import Machine, NodeAnnotation, read_machine
from agents.notice.settings import NoticeSettings
from agents.notice.sources import GceMetadata, NoticeFile, NoticeSource
from runtime.clock import SystemClock
from runtime.kubernetes.client import KubernetesApi
from runtime.kubernetes.configuration import ApiConfiguration, connected, from_pod_or_kubeconfig
from runtime.logs import logger
from runtime.process import Stop

MAINTENANCE_S = 60.0
GPU_MAINTENANCE_S = 3600.0
"""Seconds of notice for an on-demand machine. One with GPUs cannot migrate and gets its notice earlier."""


async def main(settings: NoticeSettings, stop: Stop) -> int:
    return await watch(settings, await from_pod_or_kubeconfig(settings.kubeconfig), stop)


async def watch(settings: NoticeSettings, configuration: ApiConfiguration, stop: Stop) -> int:
    async with connected(configuration, "tradewind-notice") as api, asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(_watch(settings, api), name="notice/watch")
        await stop.wait()
        watching.cancel()
    return 0


async def _watch(settings: NoticeSettings, api: KubernetesApi) -> None:
    """Until cancelled. Without the API a notice could not be written, so nothing is lost by asking it first."""
    machine = await read_machine(api, settings.node)
    annotation = NodeAnnotation(api, settings.node, machine.boot_id, SystemClock())
    logger(node=settings.node).info("notice_watched", maintenance_s=maintenance_s(settings, machine))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(annotation.run(), name="notice/annotation")
        tasks.create_task(source_of(settings, machine).watch(annotation.tell), name="notice/source")


def source_of(settings: NoticeSettings, machine: Machine) -> NoticeSource:
    if settings.notice_file is not None:
        return NoticeFile(Path(settings.notice_file))
    return GceMetadata(settings.metadata_host, settings.notice_s, maintenance_s(settings, machine))


def maintenance_s(settings: NoticeSettings, machine: Machine) -> float:
    """From the announcement of host maintenance to the end of the machine, as Compute Engine documents it."""
    if settings.maintenance_s is not None:
        return settings.maintenance_s
    if machine.is_spot:
        return settings.notice_s  # it is preempted instead
    return GPU_MAINTENANCE_S if machine.has_gpus else MAINTENANCE_S
