"""The watcher's own node: its machine, and the notice on it."""

import asyncio

from agents.clouds.interface import Machine, NodeTraits, Notice
from messages.decoding import Undecodable, decode
from messages.labels import NOTICE_ANNOTATION, NOTICE_BOOT_ANNOTATION, NOTICE_WHY_ANNOTATION, NOTICED_LABEL
from runtime.clock import Clock
from runtime.kubernetes.client import ApiRefused, ApiUnavailable, KubernetesApi
from runtime.kubernetes.objects import Node
from runtime.kubernetes.paths import NODES_PATH
from runtime.logs import WhyLog, logger
from runtime.retry import Backoff

READ_PAUSE_S = 0.1
READ_PAUSE_MOST_S = 5.0
WRITE_PAUSE_S = 0.05
WRITE_PAUSE_MOST_S = 2.0

Annotations = dict[str, str | None]
NONE: Annotations = {NOTICE_ANNOTATION: None, NOTICE_WHY_ANNOTATION: None, NOTICE_BOOT_ANNOTATION: None}


async def read_machine(api: KubernetesApi, node: str, traits: NodeTraits) -> Machine:
    """Reads the node from the API. Retries until that succeeds."""
    backoff, log_trouble = Backoff(READ_PAUSE_S, READ_PAUSE_MOST_S), WhyLog(logger(node=node), "node_not_read_yet")
    while True:
        try:
            return machine_of(decode(await api.get(f"{NODES_PATH}/{node}"), Node), traits)
        except (ApiUnavailable, ApiRefused, Undecodable) as error:
            log_trouble(str(error))
            await backoff.wait(0.0 if isinstance(error, Undecodable) else error.retry_after_s)


def machine_of(node: Node, traits: NodeTraits) -> Machine:
    labels = node.metadata.labels or {}
    return Machine(
        boot_id=node.status.node_info.boot_id,
        is_spot=any(labels.get(label) == value for label, value in traits.spot_labels),
        has_gpus=traits.accelerator_label in labels,
    )


class NodeAnnotation:
    """Writes each notice on the node at once, retries until that succeeds, and removes a notice that is withdrawn."""

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
        """Writes each change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._write()

    async def _write(self) -> None:
        backoff = Backoff(WRITE_PAUSE_S, WRITE_PAUSE_MOST_S)
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
