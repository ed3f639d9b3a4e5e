"""A client of the simulator's control endpoint: its inventory, its bill, and faults to cause."""

from collections import Counter
from typing import TypeVar

import aiohttp
import msgspec
from msgspec import Struct

from messages.labels import JOB_LABEL
from runtime.errors import Temporary

T = TypeVar("T")

ANSWER_S = 10.0
"""Seconds that a request may take."""


class SimulatorAway(Temporary):
    """The simulator does not answer, or answers with an error."""


class Node(Struct, frozen=True):
    name: str
    cluster: str
    zone: str
    phase: str
    pool: str = ""
    instance_id: str = ""


class Pool(Struct, frozen=True):
    name: str
    cluster: str


class Inventory(Struct, frozen=True):
    pools: tuple[Pool, ...]
    nodes: tuple[Node, ...]


class Bill(Struct, frozen=True):
    micro_usd: int


class Call(Struct, frozen=True):
    api: str
    method: str
    outcome: str


class Simulator:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.url = url
        self._session = session

    async def is_there(self) -> bool:
        try:
            await self._ask("GET", "/healthz", dict[str, str])
        except SimulatorAway:
            return False
        return True

    async def inventory_of(self, job: str) -> Inventory:
        return await self._ask("GET", f"/inventory?label={JOB_LABEL}={job}", Inventory)

    async def bill_of(self, job: str) -> Bill:
        return await self._ask("GET", f"/bill?label={JOB_LABEL}={job}", Bill)

    async def calls(self) -> Counter[str]:
        """Successful calls of each method of GKE's API."""
        calls = await self._ask("GET", "/calls?api=gke", list[Call])
        return Counter(call.method for call in calls if call.outcome == "OK")

    async def preempt(self, node: str, notice_s: float) -> None:
        """Preempts a node; 0 s: without notice."""
        await self._order("preempt", {"node": node, "notice_s": notice_s})

    async def hang(self, node: str) -> None:
        """Stops a node's kubelet from reporting and suspends its programs."""
        await self._order("ready", {"node": node, "ready": False})

    async def upgrade(self, cluster: str, pool: str) -> None:
        """Upgrades all nodes of the pool in turn, also in maintenance exclusions."""
        await self._order("upgrade", {"cluster": cluster, "pool": pool, "forced": True})

    async def stock_out(self, zone: str, accelerator: str) -> None:
        await self._order("stockout", {"zone": zone, "accelerator": accelerator, "on": True})

    async def set_price(self, zone: str, accelerator: str, usd_per_hour: float) -> None:
        await self._order("price", {"zone": zone, "accelerator": accelerator, "price": usd_per_hour})

    async def _order(self, order: str, body: dict[str, object]) -> None:
        await self._ask("POST", f"/control/{order}", dict[str, object], body)

    async def _ask(self, method: str, path: str, answer: type[T], body: object = None) -> T:
        try:
            async with self._session.request(
                method, self.url + path, json=body, timeout=aiohttp.ClientTimeout(ANSWER_S)
            ) as response:
                payload = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = (
                f"no answer within {ANSWER_S:g} s"
                if isinstance(error, TimeoutError)
                else str(error) or type(error).__name__
            )
            raise SimulatorAway(f"The simulator at {self.url} did not answer {method} {path}: {why}.") from error
        if not response.ok:
            text = payload.decode(errors="replace")[:200]
            raise SimulatorAway(
                f"The simulator at {self.url} answered {method} {path} with HTTP status {response.status}: {text}"
            )
        return msgspec.json.decode(payload, type=answer)
