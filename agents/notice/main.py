"""The notice daemon, from its settings to its exit code."""

import asyncio
from pathlib import Path
from typing import Any

from agents.cluster.kubernetes.client import connected, found_configuration
from agents.notice.annotation import NodeAnnotation
from agents.notice.file import NoticeFile
from agents.notice.metadata import GceMetadata
from agents.notice.settings import NoticeSettings
from agents.notice.source import NoticeSource
from runtime.clock import SystemClock
from runtime.logs import logger
from runtime.process import Stop


async def main(settings: NoticeSettings, stop: Stop) -> int:
    return await watch(settings, await found_configuration(settings.kubeconfig), stop)


async def watch(settings: NoticeSettings, configuration: Any, stop: Stop) -> int:
    """`configuration` says how to reach the API: see `agents.cluster.kubernetes.client`."""
    async with connected(configuration, "tradewind-notice") as api, asyncio.TaskGroup() as tasks:
        annotation = NodeAnnotation(api, settings.node, SystemClock())
        own = [
            tasks.create_task(annotation.run(), name="notice/annotation"),
            tasks.create_task(source_of(settings).watch(annotation.tell), name="notice/source"),
        ]
        logger(node=settings.node).info("notice_watched")
        await stop.wait()
        for task in own:
            task.cancel()
    return 0


def source_of(settings: NoticeSettings) -> NoticeSource:
    if settings.notice_file is not None:
        return NoticeFile(Path(settings.notice_file))
    return GceMetadata(settings.metadata_host, settings.notice_s, settings.maintenance_s)
