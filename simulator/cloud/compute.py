"""The part of Compute's REST API that GKE's lacks: quotas, instances, groups, deletion of chosen nodes."""

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from aiohttp import web
from msgspec import Struct, field

from simulator.cloud.calls import CallLog
from simulator.cloud.gate import Gate
from simulator.cloud.inventory import Wanted, wanting
from simulator.cloud.model import quotas, refusals, view
from simulator.cloud.model.names import NodeName, OperationName
from simulator.cloud.model.refusals import COMPUTE, Refusal
from simulator.cloud.model.requests import DeleteInstances, Started
from simulator.cloud.model.state import Cloud, Failure, Group, Instance, Node, Operation, Pool, PoolSpec, Shortage
from simulator.cloud.replies import body_of, google_error, reply, rfc3339
from simulator.cloud.shell import CloudService

API = "https://www.googleapis.com/compute/v1"
_FILTER = re.compile(r"(?:labels\.([a-z0-9_-]+)(?::\*|=([a-z0-9_-]*)))?\Z")


def label_filter(text: str) -> Wanted | None:
    """The filter `labels.KEY:*` or `labels.KEY=VALUE`; None for any other text."""
    matched = _FILTER.match(text)
    if matched is None:
        return None
    key, value = matched[1] or "", matched[2]
    return wanting(key if value is None else f"{key}={value}")


def instances_of(cloud: Cloud, project: str, wanted: Wanted) -> Iterator[tuple[Pool, Node, Instance]]:
    for node in sorted(cloud.nodes.values(), key=lambda node: (node.zone, node.name)):
        pool = cloud.pools[node.pool]
        if node.instance is not None and node.pool.project == project and wanted(pool.spec.resource_labels):
            yield pool, node, node.instance


def _interface(spec: PoolSpec) -> dict[str, Any]:
    """The network interface; private nodes have no access config, so no external address."""
    access = [] if spec.private else [{"kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT"}]
    return {"name": "nic0", **({"accessConfigs": access} if access else {})}


def instance_body(pool: Pool, node: Node, instance: Instance, started: str) -> dict[str, Any]:
    spec = pool.spec
    zone = f"{API}/projects/{node.pool.project}/zones/{node.zone}"
    gpus = [{"acceleratorType": f"{zone}/acceleratorTypes/{spec.accelerator}", "acceleratorCount": spec.accelerators}]
    return {
        "kind": "compute#instance",
        "id": instance.id,
        "name": node.name,
        "zone": zone,
        "machineType": f"{zone}/machineTypes/{spec.machine.name}",
        "status": "STOPPING" if instance.is_noticed else "RUNNING",
        "creationTimestamp": started,
        "lastStartTimestamp": started,
        "labels": {**spec.resource_labels, "goog-k8s-node-pool-name": pool.key.pool},
        "networkInterfaces": [_interface(spec)],
        "scheduling": {"provisioningModel": "SPOT" if spec.spot else "STANDARD", "preemptible": spec.spot},
        **({"guestAccelerators": gpus} if spec.accelerator else {}),
    }


BASE = "/compute/v1/projects/{project}"

CODES = {Shortage.STOCKOUT: "ZONE_RESOURCE_POOL_EXHAUSTED", Shortage.QUOTA: "QUOTA_EXCEEDED"}
"""Compute's names for GKE's codes."""

Answer = web.Response | Refusal


class Instances(Struct, frozen=True):
    instances: list[str] = field(default_factory=list)
    """URLs that end with the node's name."""
    skip: bool = field(default=False, name="skipInstancesOnValidationError")


class ComputeApi:
    def __init__(self, service: CloudService, gate: Gate, calls: CallLog) -> None:
        self._service = service
        self._gate = gate
        self._calls = calls

    def routes(self) -> list[web.RouteDef]:
        group = f"{BASE}/zones/{{zone}}/instanceGroupManagers/{{group}}"
        operation = f"{BASE}/zones/{{zone}}/operations/{{operation}}"
        return [
            web.get(BASE, self._checked("projects.get", self._project)),
            web.get(f"{BASE}/aggregated/instances", self._checked("instances.aggregatedList", self._instances)),
            web.get(f"{BASE}/regions/{{region}}", self._checked("regions.get", self._region)),
            web.get(group, self._checked("instanceGroupManagers.get", self._group)),
            web.post(f"{group}/deleteInstances", self._checked("instanceGroupManagers.deleteInstances", self._delete)),
            web.get(f"{group}/listErrors", self._checked("instanceGroupManagers.listErrors", self._errors)),
            web.post(
                f"{group}/listManagedInstances",
                self._checked("instanceGroupManagers.listManagedInstances", self._managed),
            ),
            web.get(operation, self._checked("zoneOperations.get", self._operation)),
        ]

    def _checked(
        self, method: str, handler: Callable[[web.Request], Awaitable[Answer]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        self._gate.methods.add((COMPUTE, method))

        async def handle(request: web.Request) -> web.Response:
            path = request.match_info
            number = self._calls.arrived("compute", method, "/".join(path.values()))
            refusal = self._gate.refusal(
                COMPUTE,
                path["project"],
                request.headers.get("Authorization", ""),
                request.headers.get("X-Goog-User-Project", ""),
                method,
            )
            answer = refusal or await handler(request)
            self._calls.ended(number, answer.code.value if isinstance(answer, Refusal) else "OK")
            return google_error(answer) if isinstance(answer, Refusal) else answer

        return handle

    async def _region(self, request: web.Request) -> Answer:
        project, region = request.match_info["project"], request.match_info["region"]
        if region not in self._service.cloud.rules.regions:
            return refusals.no_resource(f"projects/{project}/regions/{region}")
        link = f"{API}/projects/{project}/regions/{region}"
        reported = {"kind": "compute#region", "name": region, "status": "UP", "selfLink": link}
        return reply(reported | {"quotas": self._quotas(project, region)})

    async def _project(self, request: web.Request) -> Answer:
        project = request.match_info["project"]
        reported = {"kind": "compute#project", "name": project, "selfLink": f"{API}/projects/{project}"}
        return reply(reported | {"quotas": self._quotas(project, quotas.PROJECT_WIDE)})

    def _quotas(self, project: str, scope: str) -> list[dict[str, Any]]:
        cloud, used = self._service.cloud, quotas.usage(self._service.cloud)
        return [
            {
                "metric": metric,
                "limit": float(quotas.limit_of(cloud, project, scope, metric)),
                "usage": float(used[project, scope, metric]),
            }
            for metric in quotas.metrics(scope)
        ]

    async def _instances(self, request: web.Request) -> Answer:
        wanted = label_filter(request.query.get("filter", ""))
        size, begin = request.query.get("maxResults", "500"), request.query.get("pageToken", "0")
        if wanted is None or not (size.isdecimal() and 0 < int(size) <= 500 and begin.isdecimal()):
            return refusals.invalid("Invalid value for a field of the request.")
        found = list(instances_of(self._service.cloud, request.match_info["project"], wanted))
        end = int(begin) + int(size)
        items: dict[str, dict[str, Any]] = {}
        for pool, node, instance in found[int(begin) : end]:
            scope = items.setdefault(f"zones/{node.zone}", {"instances": []})
            started = rfc3339(self._service.wall_s(instance.started_s))
            scope["instances"].append(instance_body(pool, node, instance, started))
        reported: dict[str, Any] = {"kind": "compute#instanceAggregatedList", "items": items}
        return reply(reported | ({"nextPageToken": str(end)} if end < len(found) else {}))

    async def _group(self, request: web.Request) -> Answer:
        found = self._find(request)
        if isinstance(found, Refusal):
            return found
        pool, group = found
        there = view.members(self._service.cloud, pool.key, group.zone)
        running = sum(view.is_running(self._service.cloud, node) for node in there)
        return reply(
            {
                "kind": "compute#instanceGroupManager",
                "name": group.name,
                "zone": f"{API}/projects/{pool.key.project}/zones/{group.zone}",
                "targetSize": group.target,
                "currentActions": {"none": running, "creating": len(there) - running},
                "status": {"isStable": running == group.target},
            }
        )

    async def _errors(self, request: web.Request) -> Answer:
        """Lists the errors of a group, newest first (not verified against Google)."""
        found = self._find(request)
        if isinstance(found, Refusal):
            return found
        pool, group = found
        items = [
            {
                "error": _error(error.why),
                "instanceActionDetails": {"action": "CREATING", "instance": _link(pool, error.zone, error.node)},
                "timestamp": rfc3339(self._service.wall_s(error.at_s)),
            }
            for error in reversed(pool.errors)
            if error.zone == group.zone
        ]
        return reply({"items": items} if items else {})

    async def _managed(self, request: web.Request) -> Answer:
        found = self._find(request)
        if isinstance(found, Refusal):
            return found
        pool, group = found
        there = view.members(self._service.cloud, pool.key, group.zone)
        return reply({"managedInstances": [self._managed_instance(pool, node) for node in there]})

    def _managed_instance(self, pool: Pool, node: Node) -> dict[str, Any]:
        reported: dict[str, Any] = {"instance": _link(pool, node.zone, node.name), "currentAction": "CREATING"}
        if node.instance is not None:
            is_running = view.is_running(self._service.cloud, node)
            reported |= {"id": node.instance.id, "instanceStatus": "RUNNING" if is_running else "STAGING"}
            reported["currentAction"] = "NONE" if is_running else "CREATING"
        if node.refused is not None:
            reported["lastAttempt"] = {"errors": {"errors": [_error(node.refused)]}}
        return reported

    async def _delete(self, request: web.Request) -> Answer:
        body = await body_of(request, Instances)
        if isinstance(body, web.Response):
            return refusals.invalid("Invalid JSON payload received.")
        path = request.match_info
        names = tuple(NodeName(each.rpartition("/")[2]) for each in body.instances)
        outcome = await self._service.ask(
            DeleteInstances(path["project"], path["zone"], path["group"], names, skip_strangers=body.skip)
        )
        if not isinstance(outcome, Started):
            return outcome if isinstance(outcome, Refusal) else reply({})
        return reply(self._reported(self._service.cloud.operations[outcome.operation]))

    async def _operation(self, request: web.Request) -> Answer:
        path = request.match_info
        operation = self._service.cloud.operations.get(OperationName(path["operation"]))
        wanted = (path["project"], path["zone"])
        if operation is None or (operation.cluster.project, operation.zone) != wanted:
            return refusals.no_resource("projects/{project}/zones/{zone}/operations/{operation}".format(**path))
        return reply(self._reported(operation))

    def _find(self, request: web.Request) -> tuple[Pool, Group] | Refusal:
        path = request.match_info
        for pool in self._service.cloud.pools.values():
            group = pool.group(path["zone"])
            is_there = self._service.now_s >= pool.grouped_s and pool.key.project == path["project"]
            if is_there and group is not None and group.name == path["group"]:
                return pool, group
        return refusals.no_resource("projects/{project}/zones/{zone}/instanceGroupManagers/{group}".format(**path))

    def _reported(self, operation: Operation) -> dict[str, Any]:
        link = f"{API}/projects/{operation.cluster.project}/zones/{operation.zone}"
        reported: dict[str, Any] = {
            "kind": "compute#operation",
            "id": operation.name.split("-")[1],
            "name": operation.name,
            "operationType": "compute.instanceGroupManagers.deleteInstances",
            "status": "DONE" if operation.is_done else "RUNNING",
            "progress": 100 if operation.is_done else 0,
            "zone": link,
            "selfLink": f"{link}/operations/{operation.name}",
            "insertTime": rfc3339(self._service.wall_s(operation.started_s)),
        }
        if operation.done_s is not None:
            reported["endTime"] = rfc3339(self._service.wall_s(operation.done_s))
        return reported


def _link(pool: Pool, zone: str, node: NodeName) -> str:
    return f"{API}/projects/{pool.key.project}/zones/{zone}/instances/{node}"


def _error(failure: Failure) -> dict[str, str]:
    code = CODES[failure.shortage] if failure.shortage is not None else "INTERNAL_ERROR"
    return {"code": code, "message": failure.message}
