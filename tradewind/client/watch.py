"""Follows a job to its end: the output of its ranks, its events and its result."""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass

from messages.api import EventLine, JobView, LogLine
from messages.events import JOB_ENDS, EventKind
from tradewind.client.api import Api
from tradewind.client.following import Seen, follow, source_of_event, source_of_line

QUIET_S = 0.5
DRAIN_S = 3.0
"""Most seconds to wait for late lines after the job's end; `QUIET_S` without a line ends the wait."""
STOPPED_CODE = 1


@dataclass(frozen=True, slots=True)
class End:
    phase: str
    why: str
    code: int
    """Exit code of a command that waited for the job."""


class Watch:
    def __init__(
        self,
        api: Api,
        name: str,
        *,
        on_line: Callable[[LogLine], None],
        on_event: Callable[[EventLine], None],
        on_away: Callable[[str], None],
    ) -> None:
        self._api = api
        self._name = name
        self._on_line = on_line
        self._on_event = on_event
        self._on_away = on_away
        self._last_line_s = 0.0
        self._failed_code: int | None = None

    async def until_end(self) -> End:
        async with asyncio.TaskGroup() as tasks:
            lines = tasks.create_task(self._lines(), name="watch-lines")
            try:
                end = await self._events()
                await self._drain(lines)
            finally:
                lines.cancel()
        return end

    async def _events(self) -> End:
        seen: Seen[EventLine] = Seen(source_of_event)
        events = follow(lambda: self._api.events(self._name, follow=True), seen, self._is_over, on_away=self._on_away)
        async for event in events:
            self._on_event(event)
            if event.kind == EventKind.TRAINER_FAILED:
                self._failed_code = own_exit_code(event)
            if event.ends_job:
                return self._end(JOB_ENDS[event.kind], event.why)
        view = await self._api.job(self._name)
        return self._end(view.phase, view.why)

    async def _lines(self) -> None:
        seen: Seen[LogLine] = Seen(source_of_line)
        async for line in follow(lambda: self._api.logs(self._name, follow=True), seen, self._is_over):
            self._last_line_s = asyncio.get_running_loop().time()
            self._on_line(line)

    async def _drain(self, lines: "asyncio.Task[None]") -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + DRAIN_S
        self._last_line_s = loop.time()
        while not lines.done() and loop.time() < min(until_s, self._last_line_s + QUIET_S):
            await asyncio.wait({lines}, timeout=QUIET_S / 5)

    async def _is_over(self) -> bool:
        return await is_over(self._api, self._name)

    def _end(self, phase: str, why: str) -> End:
        match phase:
            case "succeeded":
                code = 0
            case "failed":
                code = self._failed_code or 1
            case _:
                code = STOPPED_CODE
        return End(phase, why, code)


def has_ended(view: JobView) -> bool:
    return view.phase in JOB_ENDS.values()


async def is_over(api: Api, job: str | None) -> bool:
    """Whether the job has ended. Without a job (events of all jobs) the stream never ends."""
    return job is not None and has_ended(await api.job(job))


def own_exit_code(event: EventLine) -> int | None:
    """The script's own exit code; None for a signal and for a rank whose peer was lost."""
    code = event.fields.get("code")
    if isinstance(code, bool) or not isinstance(code, int) or event.fields.get("peer_lost"):
        return None
    return code if 0 < code < 128 + signal.NSIG else None
