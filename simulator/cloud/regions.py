"""The regions over HTTP: requests to them, and polls that notice when one is away or back."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, assert_never
from urllib.parse import quote

import aiohttp
from msgspec import Struct, ValidationError, convert

from runtime.clock import Clock
from runtime.errors import Temporary
from runtime.logs import WhyLog, logger
from simulator.cloud.model.effects import (
    AnnounceMaintenance,
    DrainNode,
    DropCluster,
    HostCluster,
    PlaceNode,
    RegionRequest,
    RemoveNode,
    SilenceNode,
    WarnNode,
)
from simulator.cloud.model.events import Event, RegionMissed, RegionSeen

T = TypeVar("T")

REQUEST_S = 10.0
REMOVE_S = 60.0
"""Seconds for a removal, in which programs have time to end."""
LOOK_S = 3.0
_GONE = 404


class RegionTrouble(Temporary):
    """The region did not answer, or did not carry out a request."""


class RegionView(Struct, frozen=True):
    incarnation: str
    clusters: tuple[Any, ...] = ()


class Reply(Struct, frozen=True):
    """A region's answer to a request: the endpoint of a hosted cluster, and if a node is drained."""

    endpoint: str = ""
    ca: str = ""
    drained: bool = False


class RegionClient:
    def __init__(self, region: str, url: str, token_s: float, session: aiohttp.ClientSession) -> None:
        self.region = region
        self._url = url
        self._token_s = token_s
        self._session = session

    async def look(self) -> RegionView:
        return _as(RegionView, await self._call("GET", "/region", timeout_s=LOOK_S))

    async def cut(self, cut: bool, cluster: str | None) -> None:
        """Makes the Kubernetes API of one or all of its clusters stop answering, or answer again."""
        await self._call("POST", "/region/cut", {"cut": cut} | ({} if cluster is None else {"cluster": cluster}))

    async def set_roles(self, account: str, granted: bool) -> None:
        """Allows or forbids nodes of this service account to pull from Google's registries."""
        await self._call("POST", "/region/roles", {"account": account, "granted": granted})

    async def tell(self, request: RegionRequest) -> Reply:
        match request:
            case HostCluster():
                body = {
                    "project": request.key.project,
                    "location": request.key.location,
                    "name": request.key.cluster,
                    "uid": request.uid,
                    "token_seconds": self._token_s,
                    "authorized_networks": request.authorized_networks,
                }
                return _as(Reply, await self._call("PUT", _cluster(request.name_in_region), body))
            case DrainNode():
                path = f"{_node(request.name_in_region, request.node)}/drain"
                return _as(Reply, await self._call("POST", path, gone_is_fine=True) or {"drained": True})
            case AnnounceMaintenance():
                await self._call(
                    "POST", f"{_node(request.name_in_region, request.node)}/maintenance", {}, gone_is_fine=True
                )
            case SilenceNode():
                path = f"{_node(request.name_in_region, request.node)}/silence"
                await self._call("POST", path, {"silent": request.silent}, gone_is_fine=True)
            case DropCluster():
                await self._call("DELETE", _cluster(request.name_in_region), timeout_s=REMOVE_S, gone_is_fine=True)
            case PlaceNode():
                await self._call("PUT", _node(request.name_in_region, request.node), _placing(request))
            case WarnNode():
                path = f"{_node(request.name_in_region, request.node)}/preempt"
                body = {"notice_s": request.notice_s, "delete_node": False}
                await self._call("POST", path, body, gone_is_fine=True)
            case RemoveNode():
                path = _node(request.name_in_region, request.node)
                await self._call("DELETE", path, timeout_s=REMOVE_S, gone_is_fine=True)
            case _:
                assert_never(request)
        return Reply()

    async def _call(
        self, method: str, path: str, body: object = None, *, timeout_s: float = REQUEST_S, gone_is_fine: bool = False
    ) -> Any:
        try:
            async with self._session.request(
                method, f"{self._url}{path}", json=body, timeout=aiohttp.ClientTimeout(total=timeout_s)
            ) as response:
                if response.status == _GONE and gone_is_fine:
                    return None
                if response.status >= 400:
                    text = (await response.text())[:300]
                    raise RegionTrouble(f"{method} {path}: {response.status} {text}")
                return await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise RegionTrouble(f"{method} {path}: {error or type(error).__name__}") from None


async def watch(client: RegionClient, every_s: float, clock: Clock, post: Callable[[Event], None]) -> None:
    """Polls a region until cancelled."""
    why = WhyLog(logger(region=client.region), "region_watched")
    while True:
        try:
            view = await client.look()
            clusters = tuple(_name(each) for each in view.clusters)
            post(RegionSeen(clock.monotonic_s(), client.region, view.incarnation, clusters))
            why(f"reachable, incarnation {view.incarnation}")
        except RegionTrouble as trouble:
            post(RegionMissed(clock.monotonic_s(), client.region, str(trouble)))
            why(f"unreachable: {trouble}")
        await asyncio.sleep(every_s)


def _placing(request: PlaceNode) -> dict[str, object]:
    return {
        "labels": dict(request.labels),
        "taints": [{"key": each.key, "value": each.value, "effect": each.effect.value} for each in request.taints],
        "capacity": dict(request.capacity),
        "instance_id": request.instance,
        "zone": request.zone,
        "shutdown_grace_s": request.shutdown_grace_s,
        "service_account": request.service_account,
        "provider_id": f"gce://{request.project}/{request.zone}/{request.node}",
    }


def _cluster(name_in_region: str) -> str:
    return f"/region/clusters/{quote(name_in_region, safe='')}"


def _node(name_in_region: str, node: str) -> str:
    return f"{_cluster(name_in_region)}/nodes/{quote(node, safe='')}"


def _name(cluster: object) -> str:
    """The name of a listed cluster, which a region gives as text or as an object."""
    return str(cluster.get("name", "")) if isinstance(cluster, dict) else str(cluster)


def _as(wanted: type[T], data: object) -> T:
    try:
        return convert(data, wanted)
    except ValidationError as error:
        raise RegionTrouble(f"unexpected answer: {error}") from None
