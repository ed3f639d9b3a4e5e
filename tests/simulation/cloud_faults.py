"""Faults of a cloud and its owners on a job's machines, and the moment at which they stop."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from simulator.cloud.model import requests, view
from simulator.cloud.model.state import Node
from simulator.market.markets import MicroUsd
from tests.simulation.cloud import PROJECT, SYSTEM_POOL
from tests.simulation.market import REGIONS, Market

if TYPE_CHECKING:
    from tests.simulation.system import System

QUOTAS = ("NVIDIA_T4_GPUS", "PREEMPTIBLE_NVIDIA_T4_GPUS", "PREEMPTIBLE_NVIDIA_L4_GPUS", "CPUS", "INSTANCES")


class CloudFaults:
    def __init__(self, system: "System", market: Market) -> None:
        self._clockwork = system.clockwork
        self._chance = system.clockwork.chance
        self._market = market
        self._cloud = market.cloud
        self._clockwork.after(self._clockwork.faults.until_s - self._clockwork.now_s, self._stop)

    def kinds(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("node preempted", lambda: self._preempt(0.0)),
            ("node preempted", lambda: self._preempt(0.0)),
            ("node noticed, then preempted", lambda: self._preempt(5.0)),
            ("several nodes preempted at once", self._preempt_several),
            ("zone lost capacity", self._shrink),
            ("zone stocked out", lambda: self._stock_out(True)),
            ("zone has machines again", lambda: self._stock_out(False)),
            ("quota changed", self._change_quota),
            ("prices changed", self._change_prices),
            ("node not ready", self._hang),
            ("pool upgraded", self._upgrade),
            ("pool deleted by a person", self._delete_a_pool),
        ]

    def _running(self) -> list[Node]:
        state = self._cloud.state
        return [node for node in state.nodes.values() if view.is_running(state, node)]

    def _preempt(self, notice_s: float) -> None:
        running = self._running()
        if running:
            node = self._chance.choice(running)
            self._clockwork.tell(f"{node.name} is taken")
            self._cloud.ask(requests.PreemptNode(node.name, notice_s))

    def _preempt_several(self) -> None:
        for _ in range(self._chance.randint(2, 4)):
            self._preempt(self._chance.choice((0.0, 5.0)))

    def _shrink(self) -> None:
        place = self._market.place_of(self._chance.choice(self._market.offers))
        self._cloud.ask(requests.SetCapacity(place, self._chance.randint(0, 4)))

    def _stock_out(self, on: bool) -> None:
        place = self._market.place_of(self._chance.choice(self._market.offers))
        self._cloud.ask(requests.StockOut(place, on))

    def _change_quota(self) -> None:
        metric, region = self._chance.choice(QUOTAS), self._chance.choice(list(REGIONS.values()))
        limit = self._chance.randint(0, 6) * (8 if metric == "CPUS" else 1)
        self._cloud.ask(requests.SetQuota(PROJECT, region, metric, limit))

    def _change_prices(self) -> None:
        for offer in self._market.offers:
            share = self._chance.uniform(0.2, 1.0)
            price = MicroUsd(round(share * self._market.on_demand_of(offer)))
            self._cloud.ask(requests.SetPrice(self._market.place_of(offer), price))

    def _hang(self) -> None:
        """Makes a machine hang until it recovers or the cloud repairs it."""
        running = self._running()
        if running:
            node = self._chance.choice(running)
            self._clockwork.tell(f"{node.name} hangs")
            self._cloud.ask(requests.SetNodeReady(node.name, False))
            self._clockwork.after(self._chance.uniform(1.0, 20.0), partial(self._recover, node))

    def _recover(self, hung: Node) -> None:
        now = self._cloud.state.nodes.get(hung.name)
        if now is not None and now.instance == hung.instance:
            self._cloud.ask(requests.SetNodeReady(hung.name, True))

    def _upgrade(self) -> None:
        keys = [key for key in self._cloud.state.pools if key.pool != SYSTEM_POOL]
        if keys:
            self._cloud.ask(requests.UpgradePool(self._chance.choice(keys), forced=True))

    def _delete_a_pool(self) -> None:
        keys = [key for key in self._cloud.state.pools if key.pool != SYSTEM_POOL]
        if keys:
            self._cloud.ask(requests.DeletePool(self._chance.choice(keys)))

    def _stop(self) -> None:
        """Stops the faults: machines are available, and none is preempted."""
        self._clockwork.tell("the faults of the cloud stop")
        self._market.restock()
        for node in list(self._cloud.state.nodes.values()):
            self._recover(node)
