"""A simulator's control endpoint with the answers of a test."""

from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from runtime.children import free_port


@dataclass
class FakeSimulator:
    nodes: list[dict[str, str]] = field(default_factory=list)
    pools: list[dict[str, str]] = field(default_factory=list)
    orders: list[tuple[str, Any]] = field(default_factory=list)
    refuses: bool = False
    port: int = field(default_factory=free_port)
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def orders_of(self, kind: str) -> list[Any]:
        return [body for order, body in self.orders if order == kind]

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/inventory", self._inventory)
        app.router.add_get("/bill", self._bill)
        app.router.add_get("/calls", self._calls)
        app.router.add_post("/control/{order}", self._order)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _inventory(self, request: web.Request) -> web.Response:
        assert request.query["label"] == "tradewind-job=demo"
        return web.json_response({"pools": self.pools, "nodes": self.nodes})

    async def _bill(self, request: web.Request) -> web.Response:
        return web.json_response({"micro_usd": 1_500_000})

    async def _calls(self, request: web.Request) -> web.Response:
        outcomes = ("OK", "OK", "UNAVAILABLE")
        return web.json_response([{"api": "gke", "method": "CreateCluster", "outcome": each} for each in outcomes])

    async def _order(self, request: web.Request) -> web.Response:
        self.orders.append((request.match_info["order"], await request.json()))
        return web.json_response({"error": "not now"}, status=409) if self.refuses else web.json_response({"ok": True})
