"""A region that only records calls: the private API that the cloud calls, without Kubernetes."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class FakeRegion:
    name: str
    port: int = 0
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)
    clusters: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    preempted: list[tuple[str, float]] = field(default_factory=list)
    cut: bool = False
    roleless: set[str] = field(default_factory=set)
    obeys: bool = True
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(middlewares=[self._refusing])
        node = "/region/clusters/{cluster}/nodes/{node}"
        app.add_routes(
            [
                web.get("/region", self._look),
                web.put("/region/clusters/{cluster}", self._put_cluster),
                web.delete("/region/clusters/{cluster}", self._delete_cluster),
                web.put(node, self._put_node),
                web.delete(node, self._delete_node),
                web.post(f"{node}/preempt", self._preempt),
                web.post("/region/cut", self._cut),
                web.post("/region/roles", self._set_roles),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def restart_empty(self) -> None:
        """Restarts the region without its state, like a container that was killed."""
        await self.stop()
        self.incarnation = uuid.uuid4().hex
        self.clusters.clear()
        self.nodes.clear()
        await self.start()

    @web.middleware
    async def _refusing(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if not self.obeys and request.method != "GET":
            return web.json_response({"error": "not now"}, status=503)
        response: web.StreamResponse = await handler(request)
        return response

    async def _look(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"region": self.name, "clusters": list(self.clusters), "incarnation": self.incarnation}
        )

    async def _put_cluster(self, request: web.Request) -> web.Response:
        name = request.match_info["cluster"]
        self.clusters[name] = await request.json()
        return web.json_response({"endpoint": f"{self.url}/k8s/{name}", "ca": ""})

    async def _delete_cluster(self, request: web.Request) -> web.Response:
        name = request.match_info["cluster"]
        self.nodes = {node: body for node, body in self.nodes.items() if body["cluster"] != name}
        return web.json_response({}, status=200 if self.clusters.pop(name, None) else 404)

    async def _put_node(self, request: web.Request) -> web.Response:
        cluster, node = request.match_info["cluster"], request.match_info["node"]
        if cluster not in self.clusters:
            return web.json_response({"error": "no such cluster"}, status=404)
        self.nodes[node] = {**await request.json(), "cluster": cluster}
        return web.json_response({})

    async def _delete_node(self, request: web.Request) -> web.Response:
        gone = self.nodes.pop(request.match_info["node"], None)
        return web.json_response({}, status=200 if gone else 404)

    async def _preempt(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.preempted.append((request.match_info["node"], body["notice_s"]))
        return web.json_response({})

    async def _cut(self, request: web.Request) -> web.Response:
        self.cut = (await request.json())["cut"]
        return web.json_response({})

    async def _set_roles(self, request: web.Request) -> web.Response:
        body = await request.json()
        (self.roleless.discard if body["granted"] else self.roleless.add)(body["account"])
        return web.json_response({})


@contextlib.asynccontextmanager
async def fake_region(name: str) -> AsyncIterator[FakeRegion]:
    region = FakeRegion(name)
    await region.start()
    try:
        yield region
    finally:
        await region.stop()
