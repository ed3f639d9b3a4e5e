"""Notices from Google's metadata server: preemption, and host maintenance."""

import asyncio
from collections.abc import Callable

import aiohttp

from agents.clouds.interface import Notice, Tell
from runtime.logs import Once, logger
from runtime.retry import Backoff

PREEMPTED = "instance/preempted"
MAINTENANCE = "instance/maintenance-event"
PREEMPTED_WHY = "the machine is being preempted"
MAINTENANCE_WHY = "the machine's host goes into maintenance"
FLAVOR = {"Metadata-Flavor": "Google"}
WAIT_S = 60
"""Seconds that the server delays its answer while the value does not change."""
ANSWER_S = 10.0
PAUSE_S = 0.1
PAUSE_MOST_S = 10.0
HIDDEN_PAUSE_S = 60.0
EARLY_S = 1.0


class GceMetadata:
    """Notices from Google's metadata server, which delays its answer until a value changes.

    With workload identity, ordinary pods cannot read these values: the watcher must be in the node's network.
    """

    def __init__(self, host: str, notice_s: float, maintenance_s: float) -> None:
        self._root = f"http://{host}/computeMetadata/v1"
        self._notice_s = notice_s
        self._maintenance_s = maintenance_s
        self._known: dict[str, Notice | None] = {}
        self._log = logger(metadata=host)
        self._log_once = Once()

    async def watch(self, tell: Tell) -> None:
        async with aiohttp.ClientSession(headers=FLAVOR) as session, asyncio.TaskGroup() as tasks:
            for path, meaning in ((PREEMPTED, self._preempted), (MAINTENANCE, self._maintained)):
                tasks.create_task(self._follow(session, path, meaning, tell), name=f"metadata/{path}")

    async def _follow(
        self, session: aiohttp.ClientSession, path: str, meaning: Callable[[str], Notice | None], tell: Tell
    ) -> None:
        backoff, etag = Backoff(PAUSE_S, PAUSE_MOST_S), ""
        loop = asyncio.get_running_loop()
        while True:
            asked_s = loop.time()
            try:
                value, new_etag = await self._ask(session, path, etag)
            except _NoAnswer as error:
                if self._log_once((path, str(error))):
                    self._log.warning("notice_unreadable", path=path, why=str(error))
                await backoff.wait(error.pause_s)
                continue
            if new_etag != etag or path not in self._known:
                self._learn(path, meaning(value), tell)
                backoff.reset()
            elif loop.time() - asked_s < EARLY_S:
                await backoff.wait()  # limits the requests to a server that answers at once
            etag = new_etag

    async def _ask(self, session: aiohttp.ClientSession, path: str, etag: str) -> tuple[str, str]:
        """Returns the value and its ETag. With `etag`, the server answers when the value changes or WAIT_S is over."""
        query = {"wait_for_change": "true", "timeout_sec": str(WAIT_S), "last_etag": etag} if etag else {}
        timeout = aiohttp.ClientTimeout(total=ANSWER_S + (WAIT_S if etag else 0))
        try:
            async with session.get(f"{self._root}/{path}", params=query, timeout=timeout) as response:
                value = (await response.text()).strip()
        except TimeoutError as error:
            raise _NoAnswer("the metadata server does not answer") from error
        except (aiohttp.ClientError, OSError, UnicodeDecodeError) as error:
            raise _NoAnswer(f"the metadata server cannot be reached: {error or type(error).__name__}") from error
        if response.status == 404:
            raise _NoAnswer("the metadata server has no such path: is the pod in the node's network?", HIDDEN_PAUSE_S)
        if response.status != 200 or response.headers.get("Metadata-Flavor") != "Google":
            raise _NoAnswer(f"the answer (status {response.status}) is not from a metadata server")
        return value, response.headers.get("ETag", "")

    def _learn(self, path: str, notice: Notice | None, tell: Tell) -> None:
        self._known[path] = notice
        notices = [known for known in self._known.values() if known is not None]
        tell(min(notices, key=lambda known: known.remaining_s, default=None))

    def _preempted(self, value: str) -> Notice | None:
        return Notice(self._notice_s, PREEMPTED_WHY) if value == "TRUE" else None

    def _maintained(self, value: str) -> Notice | None:
        """Returns None if the machine migrates to another host."""
        terminates = value == "TERMINATE_ON_HOST_MAINTENANCE"
        return Notice(self._maintenance_s, MAINTENANCE_WHY) if terminates else None


class _NoAnswer(Exception):
    def __init__(self, why: str, pause_s: float = 0.0) -> None:
        super().__init__(why)
        self.pause_s = pause_s
