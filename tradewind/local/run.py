"""One job on a stack of its own: started, followed to its end, and nothing left of it."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from messages.api import LogLine
from messages.jobs import JobSpec
from runtime.errors import TradewindError
from runtime.process import Stop
from runtime.waiting import first_of
from tradewind.cli import output
from tradewind.cli.client import Api
from tradewind.cli.errors import MasterAway
from tradewind.cli.foreground import unless_stopped
from tradewind.cli.stop import checkpoint_text, waiting_text
from tradewind.cli.watch import Watch
from tradewind.local.stack import local_stack

STOP_S = 10.0
"""Seconds that an interrupted job has to end, besides the grace of its trainers, before its processes are ended."""
POLL_S = 0.2
QUIET_S = 2.0
"""Whatever takes longer is explained."""


class LocalRun:
    def __init__(
        self, spec: JobSpec, environ: Mapping[str, str], stop: Stop, on_line: Callable[[LogLine], None]
    ) -> None:
        self._spec = spec
        self._environ = environ
        self._stop = stop
        self._on_line = on_line
        self._api: Api | None = None
        self._ended = asyncio.Event()

    async def result(self) -> int:
        return await unless_stopped(self._work(), self._stop, self._stop_job)

    async def _work(self) -> int:
        began = time.monotonic()
        async with local_stack(self._environ, output.say) as stack:
            await stack.api.submit(self._spec)
            self._api = stack.api
            watch = Watch(
                stack.api,
                self._spec.name,
                on_line=self._on_line,
                on_event=output.tell_event,
                on_away=lambda why: output.say("the master is away; the job goes on"),
            )
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(tell_waiting(stack.api, self._spec.name), name="run-waiting")
                end = await watch.until_end()
                self._ended.set()
                waiting.cancel()
        took = output.duration(time.monotonic() - began)
        output.say(f"{self._spec.name} {end.phase} after {took}: {output.first_line(end.why)}")
        return end.code

    async def _stop_job(self) -> None:
        """The trainers get their grace, so that they can save what they have; a second signal cuts it short."""
        if self._api is None:
            return
        output.say("stopping the job; once more to stop at once")
        with contextlib.suppress(TradewindError, TimeoutError):
            async with asyncio.timeout(STOP_S):
                before = await self._api.job(self._spec.name)
                view = await self._api.stop(self._spec.name)
            output.say(waiting_text(view))
            async with asyncio.timeout((view.stop_grace_s or 0.0) + STOP_S):
                await first_of(self._ended, self._stop.forced)
                after = await self._api.job(self._spec.name)
            if self._ended.is_set():
                output.say(checkpoint_text(before, after)[1])


async def tell_waiting(api: Api, name: str) -> None:
    """What the job waits for before its first world, if that takes a while."""
    told = ""
    await asyncio.sleep(QUIET_S)
    while True:
        with contextlib.suppress(MasterAway):
            view = await api.job(name)
            if view.phase not in ("waiting", "forming"):
                return
            if view.why != told:
                told = view.why
                output.say(f"{view.phase}: {told}")
        await asyncio.sleep(POLL_S)
