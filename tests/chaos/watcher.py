"""Watches the jobs while they run: stores their newest views, and prints lines for people."""

import asyncio
import contextlib
from dataclasses import dataclass, field

from messages.api import JobView
from runtime.errors import UserError
from tests.chaos.faults import JOBS
from tests.chaos.forge import Known
from tests.chaos.stage import Stage
from tradewind.client.api import Api, session
from tradewind.client.errors import MasterAway
from tradewind.local.stack import Say

LOOK_S = 1.0
SAY_S = 10.0
ENDED = ("succeeded", "failed", "stopped")


@dataclass
class Watcher:
    stage: Stage
    say: Say
    views: dict[str, JobView] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return len(self.views) == len(JOBS) and all(view.phase in ENDED for view in self.views.values())

    @property
    def workers(self) -> list[Known]:
        return [Known(name, worker) for name, view in sorted(self.views.items()) for worker in view.workers]

    async def run(self) -> None:
        """Runs until cancelled."""
        loop = asyncio.get_running_loop()
        said_s = loop.time()
        async with session() as opened:
            api = Api(opened, ",".join(self.stage.urls.values()))
            while True:
                await self._look(api)
                if loop.time() - said_s > SAY_S:
                    said_s = loop.time()
                    self.say(self.line())
                await asyncio.sleep(LOOK_S)

    def line(self) -> str:
        return " | ".join(_short(name, self.views.get(name)) for name in JOBS)

    async def _look(self, api: Api) -> None:
        for name in JOBS:
            with contextlib.suppress(MasterAway, UserError):
                self.views[name] = await api.job(name)


def _short(name: str, view: JobView | None) -> str:
    if view is None:
        return f"{name} –"
    return f"{name} {view.phase} g{view.generation} step {view.step or 0} {view.world_size}/{view.wanted}"
