"""A master for the trial: its machines are real ones of the simulator, and tests can make it do each thing wrong."""

import time
from dataclasses import dataclass, field, replace

import aiohttp
import msgspec
from aiohttp import web

from controlplane.clouds.interface import Cloud, PoolRef
from controlplane.clouds.outcomes import Done
from messages.api import EventLine, LogLine, WorkerView
from messages.ids import Generation, Rank, WorkerId
from messages.labels import JOB_LABEL
from tests.cli.fake_master import FakeMaster, a_view
from tests.clouds.contract import a_pool
from tests.clouds.simulated import ZONE
from tests.reaper.ground import CLUSTER

NOTICED, LOST = "worker w1 got a notice", "worker w1 is gone"
JOB = "gke-trial"
POOL = PoolRef(CLUSTER, "a-job-pool")


@dataclass
class TrialMaster(FakeMaster):
    cloud: Cloud | None = None
    control_url: str = ""
    device: str = "cuda:0 (NVIDIA L4)"
    has_notices: bool = True
    replaces: bool = True
    keeps_noticed: bool = False
    """True if a worker with a notice stays in the world."""
    grows: bool = True
    """False: only worlds of one worker train."""
    on_scale: str = "removes one"
    """What a scale-down does: `removes one`, `ignores`, `removes all` or `refills`."""
    deletes_pools: bool = True
    ledger_factor: float = 1.0
    noticed: set[str] = field(default_factory=set)
    machines: dict[str, str] = field(default_factory=dict)
    """The id of the machine of each node when the node was first seen."""
    submitted_at: float = 0.0

    async def _submit(self, request: web.Request) -> web.Response:
        answer = await super()._submit(request)
        assert self.cloud is not None
        plan = replace(a_pool(ZONE), name=POOL.pool, size=2, labels={JOB_LABEL: JOB})
        assert await self.cloud.create_pool(CLUSTER, plan) == Done()
        self.submitted_at = time.time() - 1
        self.views[JOB] = a_view(JOB, step=0, submitted_at=self.submitted_at)
        self.lines += [LogLine(time.time(), Rank(rank), Generation(1), f"device: {self.device}") for rank in (0, 1)]
        return answer

    async def _job(self, request: web.Request) -> web.Response:
        view = self.views[JOB]
        if view.phase == "running":
            await self._see()
            size = await self._machines()
            size = size if self.grows and (self.replaces or not self.noticed) else min(size, 1)
            size = 2 if self.keeps_noticed else size
            members = tuple(
                WorkerView(WorkerId(f"w{n}"), CLUSTER, "training", "alive", ranks=(Rank(n - 1),)) for n in (1, 2)
            )
            self.views[JOB] = msgspec.structs.replace(
                view,
                step=(view.step or 0) + 1,
                world_size=min(size, view.wanted),
                workers=members if self.keeps_noticed or not self.noticed else members[1:],
            )
        return self._json(self.views[JOB])

    async def _job_events(self, request: web.Request) -> web.StreamResponse:
        await self._see()
        return await super()._job_events(request)

    async def _scale(self, request: web.Request) -> web.Response:
        answer = await super()._scale(request)
        names = sorted(node["name"] for node in await self._nodes() if node["phase"] == "running")
        assert self.cloud is not None
        if self.on_scale != "ignores" and self.views[JOB].wanted < len(names):
            gone = names if self.on_scale == "removes all" else names[:1]
            assert await self.cloud.remove_nodes(POOL, gone) == Done()
        if self.on_scale == "refills" or self.views[JOB].wanted > len(names):
            assert await self.cloud.resize_pool(POOL, 2) == Done()
        return answer

    async def _stop(self, request: web.Request) -> web.Response:
        answer = await super()._stop(request)
        if self.deletes_pools and self.cloud is not None:
            await self.cloud.delete_pool(POOL)
        return answer

    async def _cost(self, request: web.Request) -> web.Response:
        url = f"{self.control_url}/bill?label={JOB_LABEL}={JOB}"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            billed = (await response.json())["micro_usd"]
        self.cost_micro_usd = round(billed * self.ledger_factor)
        return await super()._cost(request)

    async def _see(self) -> None:
        """Add a notice for each node that will end soon or was re-created since the last look."""
        for node in await self._nodes():
            if node["instance_id"]:
                self.machines.setdefault(node["name"], node["instance_id"])
            is_other = node["instance_id"] != self.machines.get(node["name"], "")
            if (node["phase"] == "noticed" or is_other) and node["name"] not in self.noticed:
                self.noticed.add(node["name"])
                kind, text = ("worker_noticed", NOTICED) if self.has_notices else ("worker_gone", LOST)
                self.events.append(
                    EventLine(at=time.time(), scope=JOB, kind=kind, text=text, why="preempted", fields={"worker": "w1"})
                )

    async def _machines(self) -> int:
        return sum(node["phase"] == "running" for node in await self._nodes())

    async def _nodes(self) -> list[dict[str, str]]:
        async with aiohttp.ClientSession() as http, http.get(f"{self.control_url}/inventory") as response:
            nodes: list[dict[str, str]] = (await response.json())["nodes"]
        return [node for node in nodes if node["pool"] == POOL.pool]
