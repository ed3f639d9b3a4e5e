"""The control endpoint: orders from tests, demos and people, and the state that they can read."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Annotated, TypeVar

from aiohttp import web
from msgspec import Meta, Struct

from simulator.cloud.calls import CallLog
from simulator.cloud.gate import Gate
from simulator.cloud.inventory import bill_of, inventory, market, prices
from simulator.cloud.model.names import NodeName, is_zone
from simulator.cloud.model.quotas import is_project_wide, metrics_named, scope_of
from simulator.cloud.model.refusals import COMPUTE, CONTAINER, Code, Refusal
from simulator.cloud.model.requests import (
    MaintainHost,
    PreemptNode,
    Request,
    SetCapacity,
    SetNodeReady,
    SetPrice,
    SetQuota,
    SetRoles,
    StockOut,
    UpgradePool,
)
from simulator.cloud.regions import RegionClient, RegionTrouble
from simulator.cloud.replies import body_of, mistake, reply
from simulator.cloud.shell import CloudService
from simulator.market.markets import ACCELERATORS, Amount, Market, NoticeSeconds, Usd, accelerator, micro_usd

T = TypeVar("T")

SERVICES = {"gke": CONTAINER, "compute": COMPUTE}


class PreemptBody(Struct, frozen=True, forbid_unknown_fields=True):
    node: str
    notice_s: NoticeSeconds | None = None


class UpgradeBody(Struct, frozen=True, forbid_unknown_fields=True):
    cluster: str
    pool: str
    forced: bool = False
    """Upgrade even during a maintenance exclusion."""


class MaintenanceBody(Struct, frozen=True, forbid_unknown_fields=True):
    node: str
    notice_s: NoticeSeconds | None = None


class ReadyBody(Struct, frozen=True, forbid_unknown_fields=True):
    node: str
    ready: bool


class StockoutBody(Struct, frozen=True, forbid_unknown_fields=True):
    zone: str
    on: bool
    accelerator: str | None = None
    """None: all accelerators in the zone."""


class CapacityBody(Struct, frozen=True, forbid_unknown_fields=True):
    zone: str
    accelerator: str
    capacity: Amount | None


class PriceBody(Struct, frozen=True, forbid_unknown_fields=True):
    zone: str
    accelerator: str
    price: Usd | None


class QuotaBody(Struct, frozen=True, forbid_unknown_fields=True):
    metric: str
    limit: Amount | None
    region: str = ""
    """Empty for a quota of the whole project."""
    project: str | None = None
    """None: all projects."""


class RolesBody(Struct, frozen=True, forbid_unknown_fields=True):
    account: str
    """Service account of nodes; `default` is the project's default account."""
    granted: bool


class CutBody(Struct, frozen=True, forbid_unknown_fields=True):
    region: str
    cut: bool
    cluster: str | None = None


class ApiBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Switches the behaviour of an API for all callers; None leaves a switch as it is."""

    api: str = "gke"
    away: bool | None = None
    throttled: bool | None = None
    disabled: bool | None = None


class RefuseBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The refusal of the next calls of a method."""

    method: str
    code: Code
    message: str
    reason: str = ""
    """Google's constant. A lower-case first letter marks Compute's older kind, such as `resourceNotReady`."""
    api: str = "gke"
    times: Annotated[int, Meta(ge=0, le=1000)] = 1
    """Number of calls to refuse; 0 cancels the refusal."""


class ControlApi:
    def __init__(
        self, service: CloudService, gate: Gate, calls: CallLog, regions: Mapping[str, RegionClient], speed: float
    ) -> None:
        self._service = service
        self._gate = gate
        self._calls = calls
        self._regions = regions
        self._speed = speed

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/healthz", self._health),
            web.get("/inventory", self._inventory),
            web.get("/bill", self._bill),
            web.get("/market", self._market),
            web.get("/prices", self._prices),
            web.get("/calls", self._seen_calls),
            web.post("/control/preempt", self._preempt),
            web.post("/control/upgrade", self._upgrade),
            web.post("/control/maintenance", self._maintenance),
            web.post("/control/ready", self._ready),
            web.post("/control/stockout", self._stockout),
            web.post("/control/capacity", self._capacity),
            web.post("/control/price", self._price),
            web.post("/control/quota", self._quota),
            web.post("/control/roles", self._roles),
            web.post("/control/cut", self._cut),
            web.post("/control/api", self._api),
            web.post("/control/refuse", self._refuse),
        ]

    async def _health(self, request: web.Request) -> web.Response:
        return reply({"status": "ok"})

    async def _inventory(self, request: web.Request) -> web.Response:
        return reply(inventory(self._service.cloud, request.query.get("label", "")))

    async def _bill(self, request: web.Request) -> web.Response:
        label = request.query.get("label", "")
        return reply(bill_of(self._service.cloud, self._service.now_s, self._speed, label))

    async def _market(self, request: web.Request) -> web.Response:
        return reply(market(self._service.cloud))

    async def _prices(self, request: web.Request) -> web.Response:
        return reply(prices(self._service.cloud, self._speed))

    async def _seen_calls(self, request: web.Request) -> web.Response:
        since = request.query.get("since", "0")
        if not since.isdecimal():
            return mistake("`since` must be the number of a call.")
        return reply(self._calls.since(int(since), request.query.get("api", ""), request.query.get("method", "")))

    async def _preempt(self, request: web.Request) -> web.Response:
        body = await body_of(request, PreemptBody)
        if isinstance(body, web.Response):
            return body
        return await self._order(request, body.node, PreemptNode(NodeName(body.node), body.notice_s))

    async def _upgrade(self, request: web.Request) -> web.Response:
        body = await body_of(request, UpgradeBody)
        if isinstance(body, web.Response):
            return body
        found = [key for key in self._service.cloud.pools if (key.cluster, key.pool) == (body.cluster, body.pool)]
        if not found:
            return mistake(f"There is no pool {body.pool!r} in a cluster {body.cluster!r}.", 404)
        return await self._order(request, f"{body.cluster}/{body.pool}", UpgradePool(found[0], body.forced))

    async def _maintenance(self, request: web.Request) -> web.Response:
        body = await body_of(request, MaintenanceBody)
        if isinstance(body, web.Response):
            return body
        return await self._order(request, body.node, MaintainHost(NodeName(body.node), body.notice_s))

    async def _ready(self, request: web.Request) -> web.Response:
        body = await body_of(request, ReadyBody)
        if isinstance(body, web.Response):
            return body
        return await self._order(request, body.node, SetNodeReady(NodeName(body.node), body.ready))

    async def _stockout(self, request: web.Request) -> web.Response:
        body = await body_of(request, StockoutBody)
        if isinstance(body, web.Response):
            return body
        names = list(ACCELERATORS) if body.accelerator is None else [body.accelerator]
        markets = [_market_of(body.zone, name) for name in names]
        known = [each for each in markets if each is not None]
        if len(known) < len(markets):
            return _no_market(body.zone, body.accelerator)
        return await self._order(request, body.zone, *(StockOut(each, body.on) for each in known))

    async def _capacity(self, request: web.Request) -> web.Response:
        body = await body_of(request, CapacityBody)
        if isinstance(body, web.Response):
            return body
        found = _market_of(body.zone, body.accelerator)
        if found is None:
            return _no_market(body.zone, body.accelerator)
        return await self._order(request, str(found), SetCapacity(found, body.capacity))

    async def _price(self, request: web.Request) -> web.Response:
        body = await body_of(request, PriceBody)
        if isinstance(body, web.Response):
            return body
        found = _market_of(body.zone, body.accelerator)
        if found is None:
            return _no_market(body.zone, body.accelerator)
        price = None if body.price is None else micro_usd(body.price)
        return await self._order(request, str(found), SetPrice(found, price))

    async def _quota(self, request: web.Request) -> web.Response:
        body = await body_of(request, QuotaBody)
        if isinstance(body, web.Response):
            return body
        if body.region and body.region not in self._regions:
            return _no_region(body.region, self._regions)
        metrics = metrics_named(body.metric)
        if not metrics or not (body.region or all(map(is_project_wide, metrics))):
            return mistake(f"There is no quota {body.metric!r} in {body.region!r}.")
        projects = self._gate.projects if body.project is None else [body.project]
        orders = [
            SetQuota(project, scope_of(metric, body.region), metric, body.limit)
            for project in projects
            for metric in metrics
        ]
        return await self._order(request, f"{body.region}/{body.metric}", *orders)

    async def _roles(self, request: web.Request) -> web.Response:
        body = await body_of(request, RolesBody)
        if isinstance(body, web.Response):
            return body
        for name, region in self._regions.items():
            try:
                await region.set_roles(body.account, body.granted)
            except RegionTrouble as trouble:
                return mistake(f"Region {name} did not carry out the order: {trouble}", 502)
        return await self._order(request, body.account, SetRoles(body.account, body.granted))

    async def _cut(self, request: web.Request) -> web.Response:
        body = await body_of(request, CutBody)
        if isinstance(body, web.Response):
            return body
        if body.region not in self._regions:
            return _no_region(body.region, self._regions)
        number = self._calls.arrived("control", "cut", body.region, str(body.cut).lower())
        try:
            await self._regions[body.region].cut(body.cut, body.cluster)
        except RegionTrouble as trouble:
            self._calls.ended(number, "UNAVAILABLE")
            return mistake(f"Region {body.region} did not carry out the order: {trouble}", 502)
        self._calls.ended(number, "OK")
        return reply({"ok": True})

    async def _api(self, request: web.Request) -> web.Response:
        body = await body_of(request, ApiBody)
        if isinstance(body, web.Response):
            return body
        service = SERVICES.get(body.api)
        if service is None:
            return mistake(f"There is no API {body.api!r}; known are {', '.join(SERVICES)}.", 404)
        _switch(self._gate.away, {service}, body.away)
        _switch(self._gate.throttling, {service}, body.throttled)
        _switch(self._gate.disabled, {(project, service) for project in self._gate.projects}, body.disabled)
        self._calls.ended(self._calls.arrived("control", "api", body.api), "OK")
        return reply({"ok": True})

    async def _refuse(self, request: web.Request) -> web.Response:
        body = await body_of(request, RefuseBody)
        if isinstance(body, web.Response):
            return body
        service = SERVICES.get(body.api)
        if service is None:
            return mistake(f"There is no API {body.api!r}; known are {', '.join(SERVICES)}.", 404)
        if (service, body.method) not in self._gate.methods:
            known = ", ".join(sorted(name for each, name in self._gate.methods if each == service))
            return mistake(f"There is no method {body.method!r} in {body.api}; known are {known}.", 404)
        refusal = Refusal(body.code, body.message, body.reason)
        self._gate.planned[service, body.method] = deque([refusal] * body.times)
        self._calls.ended(self._calls.arrived("control", "refuse", body.method), "OK")
        return reply({"ok": True})

    async def _order(self, request: web.Request, target: str, *orders: Request) -> web.Response:
        number = self._calls.arrived("control", request.path.rpartition("/")[2], target)
        for order in orders:
            outcome = await self._service.ask(order)
            if isinstance(outcome, Refusal):
                self._calls.ended(number, outcome.code.value)
                return mistake(outcome.message, 404 if outcome.code.value == "NOT_FOUND" else 409)
        self._calls.ended(number, "OK")
        return reply({"ok": True, "call": number})


def _market_of(zone: str, name: str) -> Market | None:
    found = accelerator(name)
    return Market(zone, found.name) if found is not None and is_zone(zone) else None


def _no_region(region: str, known: Iterable[str]) -> web.Response:
    return mistake(f"There is no region {region!r}; known are {', '.join(known)}.", 404)


def _no_market(zone: str, name: str | None) -> web.Response:
    return mistake(f"There is no market for {name or 'anything'} in {zone!r}; known are {', '.join(ACCELERATORS)}.")


def _switch(names: set[T], which: set[T], on: bool | None) -> None:
    if on is True:
        names |= which
    elif on is False:
        names -= which
