"""The course of the demonstration with a cloud: a node hangs and is repaired, zones run out of machines, a machine is
lost without notice, a node is upgraded, and another is preempted with notice.

The notice comes last, because the story does not wait for its result: the cloud tries to replace the machine by itself,
and its failure is known only much later. The upgrade is that of the smallest pool.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from controlplane.catalog.places import region_of
from controlplane.clouds.spec import Fleet
from messages.api import EventLine, JobView
from messages.costs import CostView
from messages.ids import Rank, WorkerId
from messages.jobs import JobSpec
from runtime import children
from tradewind.client.api import Api
from tradewind.client.errors import MasterAway
from tradewind.demo.cloud.facts import (
    Asked,
    CloudFacts,
    How,
    Stockout,
    Taken,
    asked_in,
    clusters_in,
    decisions_in,
    identified,
    partings_in,
    removals_in,
    stockouts_in,
)
from tradewind.demo.facts import Facts, Kill, Promise
from tradewind.demo.story import NOTICED_AT_SHARE, Story
from tradewind.local.fleet import home, region
from tradewind.local.simulator import Bill, Inventory, Node, Simulator, SimulatorAway

NOTICE_S = 15.0
WITHOUT_NOTICE_S = 0.0
DRAIN_S = 60.0
"""Seconds that workers on a cordoned node have."""
CLEAN_UP_S = 60.0
LOOK_AFTER_S = 0.5
LEDGER_S = 10.0
BY_US = "the demonstration causes it"


class CloudStory(Story):
    def __init__(
        self,
        api: Api,
        spec: JobSpec,
        promise: Promise,
        on_event: Callable[[EventLine], None],
        cloud: Simulator,
        fleet: Fleet,
    ) -> None:
        super().__init__(api, spec, promise, on_event)
        self._cloud = cloud
        self._fleet = fleet
        self._regions = {cluster.name: region(cluster) for cluster in fleet.clusters}
        """The region of each cluster, by name."""
        self._taken: list[Taken] = []
        self._members: dict[str, dict[WorkerId, Rank]] = {}
        """The members of the world at each fault, by node."""
        self._processes: dict[str, dict[WorkerId, list[int]]] = {}
        """The processes of those members, by node and worker."""
        self._machines: dict[str, str] = {}
        """The earlier machine of a node that the cloud re-creates, by node."""
        self._stocked_out = False
        self._left: Inventory | None = None
        self._bill = Bill(0)
        self._calls: Mapping[str, int] = {}
        self._cost: CostView | None = None

    def facts(self, left_behind: tuple[str, ...]) -> Facts:
        taken = tuple(self._identified(each) for each in self._taken)
        kills = tuple(kill for each in taken if (kill := self._kill_of(each)) is not None)
        return replace(super().facts(left_behind), kills=kills, cloud=self._cloud_facts(taken))

    async def _act(self, view: JobView) -> None:
        with contextlib.suppress(SimulatorAway):
            await self._see_renewals()
            if not self._is_settled(view) or any(each.node in self._machines for each in self._taken):
                return
            match len(self._taken):
                case 0 if self.step >= self.promise.steps * NOTICED_AT_SHARE:
                    await self._hang(view)
                case 1:
                    await self._stock_out()
                    await self._take(view, WITHOUT_NOTICE_S)
                case 2 if self._is_spread(view):
                    await self._upgrade(view)
                case 3 if self._is_spread(view):
                    await self._take(view, NOTICE_S)

    async def _look_afterwards(self) -> None:
        """Waits until the cloud has nothing of the job, or until a time limit, and reads bill and ledger."""
        self._tell("demo_waits", "waiting until the cloud has deleted the job's pools", "the job has ended")
        for _ in range(round(CLEAN_UP_S / LOOK_AFTER_S)):
            with contextlib.suppress(SimulatorAway):
                self._left = await self._cloud.inventory_of(self._spec.name)
                if not self._left.pools and not self._left.nodes:
                    break
            await asyncio.sleep(LOOK_AFTER_S)
        with contextlib.suppress(SimulatorAway):
            self._bill = await self._cloud.bill_of(self._spec.name)
            self._calls = await self._cloud.calls()
        await self._look_at_the_ledger()

    async def _look_at_the_ledger(self) -> None:
        """Reads the cost, until the ledger has recorded the end of the last machine."""
        for _ in range(round(LEDGER_S / LOOK_AFTER_S)):
            with contextlib.suppress(MasterAway):
                self._cost = await self._api.cost(self._spec.name)
                if not self._cost.machines:
                    return
            await asyncio.sleep(LOOK_AFTER_S)

    def _is_spread(self, view: JobView) -> bool:
        """Whether the world is full and has workers in two regions."""
        regions = {self._regions.get(worker.cluster, "") for worker in view.workers if worker.ranks}
        return len(regions) > 1 and self._is_settled(view)

    async def _stock_out(self) -> None:
        if self._stocked_out:
            return
        at_home = [offer for offer in self._fleet.offers if offer.zone in home(self._fleet).zones]
        for offer in at_home:
            if offer.accelerator is not None:
                await self._cloud.stock_out(offer.zone, offer.accelerator)
        self._stocked_out = True
        zones = " and ".join(offer.zone for offer in at_home)
        self._tell("demo_stocked_out", f"{zones} have no more machines", BY_US)

    async def _take(self, view: JobView, notice_s: float) -> None:
        node = await self._choose(at_home=True)
        if node is None:
            return
        taken = Taken(node.name, node.zone, notice_s, view.generation, self.step, time.time())
        self._note_members(view, node)
        await self._cloud.preempt(node.name, notice_s)
        self._taken.append(taken)
        how = f"with a notice of {notice_s:g} s" if notice_s else "without notice"
        self._tell("demo_preempted", f"the cloud preempts node {node.name} {how}", BY_US)

    async def _hang(self, view: JobView) -> None:
        node = await self._choose(at_home=True)
        if node is None:
            return
        taken = Taken(node.name, node.zone, 0.0, view.generation, self.step, time.time(), how=How.HUNG)
        self._note_members(view, node)
        await self._cloud.hang(node.name)
        self._taken.append(taken)
        self._machines[node.name] = node.instance_id
        self._tell("demo_hung", f"node {node.name} hangs and stops reporting", BY_US)

    async def _upgrade(self, view: JobView) -> None:
        node = await self._choose(at_home=False)
        if node is None:
            return
        taken = Taken(node.name, node.zone, DRAIN_S, view.generation, self.step, time.time(), how=How.UPGRADED)
        self._note_members(view, node)
        await self._cloud.upgrade(node.cluster, node.pool)
        self._taken.append(taken)
        self._machines[node.name] = node.instance_id
        self._tell("demo_upgraded", f"the cloud upgrades pool {node.pool}", BY_US)

    async def _see_renewals(self) -> None:
        """Notes when another machine has a node's name, or no machine has it."""
        if not self._machines:
            return
        nodes = {node.name: node for node in (await self._cloud.inventory_of(self._spec.name)).nodes}
        for number, taken in enumerate(self._taken):
            before, now = self._machines.get(taken.node), nodes.get(taken.node)
            if before is None or (now is not None and (now.phase != "running" or now.instance_id == before)):
                continue
            del self._machines[taken.node]
            self._taken[number] = replace(taken, renewed_at=time.time())

    def _note_members(self, view: JobView, node: Node) -> None:
        self._members[node.name] = {worker.worker: worker.ranks[0] for worker in view.workers if worker.ranks}
        self._processes[node.name] = {
            worker.worker: [worker.pid, *children.alive_below(worker.pid)] for worker in view.workers if worker.pid
        }

    async def _choose(self, *, at_home: bool) -> Node | None:
        known = {taken.node for taken in self._taken}
        nodes = [node for node in (await self._cloud.inventory_of(self._spec.name)).nodes if node.phase == "running"]
        fitting = [node for node in nodes if (node.zone in home(self._fleet).zones) is at_home]
        return next((node for node in fitting if node.name not in known), None)

    def _identified(self, taken: Taken) -> Taken:
        return replace(taken, worker=identified(taken, self.events, frozenset(self._members[taken.node])))

    def _kill_of(self, taken: Taken) -> Kill | None:
        if taken.notice_s or taken.worker is None:
            return None
        rank = self._members[taken.node][taken.worker]
        survived = tuple(pid for pid in self._processes[taken.node].get(taken.worker, []) if not children.is_dead(pid))
        return Kill(taken.worker, rank, taken.generation, taken.step, taken.at, survived)

    def _cloud_facts(self, taken: tuple[Taken, ...]) -> CloudFacts:
        left = self._left
        joined = clusters_in(self.events)
        return CloudFacts(
            clusters=len(self._fleet.clusters),
            taken=taken,
            partings=partings_in(self.events),
            regions={worker: self._regions.get(cluster, "") for worker, cluster in joined.items()},
            asked=tuple(Asked(zone, region_of(zone), at) for zone, at in asked_in(self.events)),
            stockouts=tuple(Stockout(zone, region_of(zone), at) for zone, at in stockouts_in(self.events)),
            removals=removals_in(self.events),
            losses=self.view.losses if self.view is not None else 0,
            calls=self._calls,
            pools_left=tuple(pool.name for pool in left.pools) if left is not None else ("unknown",),
            nodes_left=tuple(node.name for node in left.nodes) if left is not None else (),
            bill_micro_usd=self._bill.micro_usd,
            decisions=decisions_in(self.events),
            cost=self._cost,
        )

    def _tell(self, kind: str, text: str, why: str) -> None:
        self._pass_event(EventLine(time.time(), self._spec.name, kind, text, why))
