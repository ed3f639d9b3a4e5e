"""The HTTP API of a region: the cloud's private commands, as JSON, and the Kubernetes API of its clusters.

GET    /region                                            the region, its clusters, its incarnation
PUT    /region/clusters/{cluster}                         creates it if it is missing; answers its endpoint
DELETE /region/clusters/{cluster}                         deletes it and ends all its processes
GET    /region/clusters/{cluster}/nodes                   its nodes with state and processes
PUT    /region/clusters/{cluster}/nodes/{node}            registers this instance if it is new
POST   /region/clusters/{cluster}/nodes/{node}/preempt    {"notice_s": 30, "delete_node": false}
POST   /region/clusters/{cluster}/nodes/{node}/drain      cordons it, evicts its pods; answers if they have left
POST   /region/clusters/{cluster}/nodes/{node}/silence    {"silent": true}: it hangs; false: it continues
POST   /region/clusters/{cluster}/nodes/{node}/maintenance {"event": "TERMINATE_ON_HOST_MAINTENANCE"}: in its metadata
DELETE /region/clusters/{cluster}/nodes/{node}            ?grace_s=5&wait=true
POST   /region/clusters/{cluster}/compact                 {"expire_watches": false}: forgets older versions (410)
POST   /region/roles                                      {"account": "default", "granted": false}: forbids pulls
POST   /region/cut                                        {"cut": true, "cluster": null, "how": "reset" | "silence"}
"""

from typing import TypeVar

import msgspec
from aiohttp import web

from runtime.errors import UserError
from runtime.problems import decode_checked
from simulator.region.cluster import NoSuch
from simulator.region.clusters import Clusters
from simulator.region.settings import (
    ClusterRequest,
    CompactRequest,
    CutRequest,
    MaintenanceRequest,
    Name,
    NodeRequest,
    PreemptRequest,
    RolesRequest,
    SilenceRequest,
)

T = TypeVar("T")


class RegionApi:
    def __init__(self, region: str, incarnation: str, clusters: Clusters) -> None:
        self._region = region
        self._incarnation = incarnation
        self._clusters = clusters

    async def handle(self, request: web.Request, cluster: str | None) -> web.StreamResponse:
        """Answers a request. `cluster` is set if it came in at that cluster's own port."""
        try:
            if cluster is not None:
                return await self._clusters.get(cluster).http.handle(request, request.path)
            match request.path.strip("/").split("/"):
                case ["k8s", name, *rest]:
                    return await self._clusters.get(name).http.handle(request, "/".join(rest))
                case ["region", *rest]:
                    return await self._command(request, rest)
        except NoSuch as problem:
            return _json({"error": str(problem)}, 404)
        except UserError as problem:
            return _json({"error": str(problem)}, 400)
        return _json({"error": f"unknown path: {request.path}"}, 404)

    async def _command(self, request: web.Request, path: list[str]) -> web.Response:
        clusters = self._clusters
        match request.method, path:
            case "GET", []:
                reported = {"region": self._region, "clusters": clusters.names, "incarnation": self._incarnation}
                return _json(reported)
            case "PUT", ["clusters", name]:
                _named(name)
                return _json(await clusters.put(name, await _read(request, ClusterRequest)))
            case "DELETE", ["clusters", name]:
                await clusters.delete(name)
                return _json({})
            case "GET", ["clusters", name, "nodes"]:
                return _json(clusters.nodes(name))
            case "PUT", ["clusters", name, "nodes", node]:
                _named(node)
                return _json(await clusters.put_node(name, node, await _read(request, NodeRequest)))
            case "POST", ["clusters", name, "nodes", node, "preempt"]:
                return _json(clusters.preempt(name, node, await _read(request, PreemptRequest)), 202)
            case "POST", ["clusters", name, "nodes", node, "drain"]:
                return _json({"drained": clusters.drain(name, node)})
            case "POST", ["clusters", name, "nodes", node, "silence"]:
                await clusters.silence(name, node, await _read(request, SilenceRequest))
                return _json({})
            case "POST", ["clusters", name, "nodes", node, "maintenance"]:
                wanted_event = (await _read(request, MaintenanceRequest)).event
                return _json(clusters.announce_maintenance(name, node, wanted_event))
            case "DELETE", ["clusters", name, "nodes", node]:
                grace = request.query.get("grace_s")
                grace_s = None if grace is None else decode_checked(float, grace, what="grace_s", strict=False)
                wait = request.query.get("wait", "true").lower() != "false"
                is_gone = await clusters.delete_node(name, node, grace_s=grace_s, wait=wait)
                return _json({"gone": is_gone}, 200 if is_gone else 202)
            case "POST", ["clusters", name, "compact"]:
                wanted = await _read(request, CompactRequest)
                clusters.compact(name, expire_watches=wanted.expire_watches)
                return _json({})
            case "POST", ["roles"]:
                clusters.set_roles(await _read(request, RolesRequest))
                return _json({})
            case "POST", ["cut"]:
                clusters.cut(await _read(request, CutRequest))
                return _json({})
        return _json({"error": f"unknown command: {request.method} {request.path}"}, 404)


def _named(name: str) -> None:
    decode_checked(Name, name, what=f"The name {name!r}")


async def _read(request: web.Request, wanted: type[T]) -> T:
    content = await request.read()
    try:
        data: object = msgspec.json.decode(content) if content else {}
    except msgspec.DecodeError as error:
        raise UserError(f"the body is not JSON: {error}") from None
    return decode_checked(wanted, data, what="The request")


def _json(content: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), status=status, content_type="application/json")
