"""The notice on the node: written as soon as it is heard, however often it has to be tried, and taken off when it is
none any more."""

import asyncio

from agents.notice.source import Notice
from messages.labels import NOTICE_ANNOTATION, NOTICE_BOOT_ANNOTATION, NOTICE_WHY_ANNOTATION, NOTICED_LABEL
from runtime.backoff import Backoff
from runtime.clock import Clock
from runtime.kubernetes.client import ApiRefused, ApiUnavailable, KubernetesApi
from runtime.kubernetes.paths import NODES_PATH
from runtime.logs import WhyLog, logger

PAUSE_S = 0.05
PAUSE_MOST_S = 2.0

Annotations = dict[str, str | None]
NONE: Annotations = {NOTICE_ANNOTATION: None, NOTICE_WHY_ANNOTATION: None, NOTICE_BOOT_ANNOTATION: None}


class NodeAnnotation:
    def __init__(self, api: KubernetesApi, node: str, boot_id: str, clock: Clock) -> None:
        self._api = api
        self._boot_id = boot_id
        self._path = f"{NODES_PATH}/{node}"
        self._clock = clock
        self._deadline_unix_s: float | None = None
        self._wanted: Annotations = NONE
        self._changed = asyncio.Event()
        self._log = logger(node=node)
        self._log_trouble = WhyLog(self._log, "notice_not_written_yet")

    def tell(self, notice: Notice | None) -> None:
        if notice is None:
            self._deadline_unix_s, self._wanted = None, NONE
        else:
            deadline_unix_s = self._clock.wall_s() + notice.remaining_s
            if self._deadline_unix_s is not None:
                deadline_unix_s = min(deadline_unix_s, self._deadline_unix_s)
            self._deadline_unix_s = deadline_unix_s
            self._wanted = {
                NOTICE_ANNOTATION: f"{deadline_unix_s:.3f}",
                NOTICE_WHY_ANNOTATION: notice.why,
                NOTICE_BOOT_ANNOTATION: self._boot_id or None,
            }
            self._log.warning("notice_heard", remaining_s=notice.remaining_s, why=notice.why)
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._write()

    async def _write(self) -> None:
        backoff = Backoff(PAUSE_S, PAUSE_MOST_S)
        while True:
            wanted = self._wanted
            try:
                labels = {NOTICED_LABEL: None if wanted == NONE else "true"}
                await self._api.patch(self._path, {"metadata": {"annotations": wanted, "labels": labels}})
            except (ApiUnavailable, ApiRefused) as error:
                self._log_trouble(str(error))
                await backoff.wait(error.retry_after_s)
                continue
            self._log.info("notice_written", deadline_unix_s=wanted[NOTICE_ANNOTATION])
            return
