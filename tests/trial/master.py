"""A fake master with real nodes: the simulator runs them. Each attribute makes it do one thing wrong."""

import time
from dataclasses import dataclass, field, replace
from typing import Literal

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


@dataclass(kw_only=True)
class TrialMaster(FakeMaster):
    """The master of one job with one pool in the cloud. By default it does everything right."""

    cloud: Cloud
    control_url: str
    """The URL of the simulator, which knows its nodes and their bill."""
    device: str = "cuda:0 (NVIDIA L4)"
    """The device that each rank prints."""
    has_notices: bool = True
    """False: an event says that the worker is gone, and none that it got a notice."""
    replaces: bool = True
    """False: the world of one worker that remains after a preemption never grows."""
    keeps_noticed: bool = False
    """True: a worker with a notice stays in the world."""
    grows: bool = True
    """False: only worlds of one worker train."""
    on_scale: Literal["removes one", "ignores", "removes all", "refills"] = "removes one"
    """What a scale-down does to the nodes. `refills` removes one and creates it again."""
    deletes_pools: bool = True
    """False: the pool remains when the job is stopped."""
    ledger_factor: float = 1.0
    """The cost that the master reports, divided by the bill."""
    noticed: set[str] = field(default_factory=set)
    """The names of nodes that got a notice or were lost."""
    machines: dict[str, str] = field(default_factory=dict)
    """The id of the machine of each node, when the node was first seen."""
    submitted_at: float = 0.0

    async def _submit(self, request: web.Request) -> web.Response:
        answer = await super()._submit(request)
        plan = replace(a_pool(ZONE), name=POOL.pool, size=2, labels={JOB_LABEL: JOB})
        assert await self.cloud.create_pool(CLUSTER, plan) == Done()
        self.submitted_at = time.time() - 1
        self.views[JOB] = a_view(JOB, step=0, submitted_at=self.submitted_at)
        self.lines += [LogLine(time.time(), Rank(rank), Generation(1), f"device: {self.device}") for rank in (0, 1)]
        return answer

    async def _job(self, request: web.Request) -> web.Response:
        view = self.views[JOB]
        if view.phase == "running":
            await self._add_notices()
            size = len(await self._running_nodes())
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
        await self._add_notices()
        return await super()._job_events(request)

    async def _scale(self, request: web.Request) -> web.Response:
        answer = await super()._scale(request)
        names = await self._running_nodes()
        if self.on_scale != "ignores" and self.views[JOB].wanted < len(names):
            gone = names if self.on_scale == "removes all" else names[:1]
            assert await self.cloud.remove_nodes(POOL, gone) == Done()
        if self.on_scale == "refills" or self.views[JOB].wanted > len(names):
            assert await self.cloud.resize_pool(POOL, 2) == Done()
        return answer

    async def _stop(self, request: web.Request) -> web.Response:
        answer = await super()._stop(request)
        if self.deletes_pools:
            assert await self.cloud.delete_pool(POOL) == Done()
        return answer

    async def _cost(self, request: web.Request) -> web.Response:
        url = f"{self.control_url}/bill?label={JOB_LABEL}={JOB}"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            billed = (await response.json())["micro_usd"]
        self.cost_micro_usd = round(billed * self.ledger_factor)
        return await super()._cost(request)

    async def _add_notices(self) -> None:
        """Add an event for each node that the cloud will preempt, or that has another machine than at first."""
        for node in await self._fetch_nodes():
            if node["instance_id"]:
                self.machines.setdefault(node["name"], node["instance_id"])
            is_other = node["instance_id"] != self.machines.get(node["name"], "")
            if (node["phase"] == "noticed" or is_other) and node["name"] not in self.noticed:
                self.noticed.add(node["name"])
                kind, text = ("worker_noticed", NOTICED) if self.has_notices else ("worker_gone", LOST)
                self.events.append(
                    EventLine(at=time.time(), scope=JOB, kind=kind, text=text, why="preempted", fields={"worker": "w1"})
                )

    async def _running_nodes(self) -> list[str]:
        return sorted(node["name"] for node in await self._fetch_nodes() if node["phase"] == "running")

    async def _fetch_nodes(self) -> list[dict[str, str]]:
        """The nodes of the job's pool, as the simulator lists them."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.control_url}/inventory") as response:
            nodes: list[dict[str, str]] = (await response.json())["nodes"]
        return [node for node in nodes if node["pool"] == POOL.pool]
