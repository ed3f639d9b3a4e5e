"""The HTTP side of the stand-in: access tokens and Compute."""

from typing import Any

from aiohttp import web

from tests.clouds.stand_in.state import PROJECT, Google, Pool, Refusal

_STATUS = {"UNAVAILABLE": 503, "RESOURCE_EXHAUSTED": 429, "PERMISSION_DENIED": 403, "INVALID_ARGUMENT": 400}


class WebServer:
    def __init__(self, google: Google) -> None:
        self._google = google
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.token_refusal: dict[str, Any] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        application = web.Application()
        application.router.add_post("/token", self._token)
        groups = f"/compute/v1/projects/{PROJECT}/zones/{{zone}}/instanceGroupManagers/{{group}}"
        application.router.add_get(groups, self._group)
        application.router.add_post(f"{groups}/deleteInstances", self._delete_instances)
        application.router.add_get(f"/compute/v1/projects/{PROJECT}", self._project)
        application.router.add_get(f"/compute/v1/projects/{PROJECT}/regions/{{region}}", self._region)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _token(self, _request: web.Request) -> web.Response:
        if self.token_refusal is not None:
            return web.json_response(self.token_refusal, status=400)
        answer = {"access_token": self._google.issue_token(), "expires_in": self._google.token_s}
        return web.json_response(answer | {"token_type": "Bearer"})

    async def _region(self, request: web.Request) -> web.Response:
        refused = self._refused(request, "regions.get")
        if refused is not None:
            return refused
        if request.match_info["region"] != "us-central1":
            return _error(404, "NOT_FOUND", f"The resource 'regions/{request.match_info['region']}' was not found")
        quotas = [{"metric": metric, "limit": limit, "usage": 0.0} for metric, limit in self._google.quotas.items()]
        return web.json_response({"name": "us-central1", "quotas": quotas})

    async def _project(self, request: web.Request) -> web.Response:
        return web.json_response({"quotas": [{"metric": "GPUS_ALL_REGIONS", "limit": 64.0, "usage": 0.0}]})

    async def _group(self, request: web.Request) -> web.Response:
        refused = self._refused(request, "instanceGroupManagers.get")
        if refused is not None:
            return refused
        pool = self._pool(request.match_info["group"])
        if pool is None:
            return _error(404, "NOT_FOUND", "The resource was not found")
        return web.json_response({"name": pool.group, "targetSize": pool.target})

    async def _delete_instances(self, request: web.Request) -> web.Response:
        refused = self._refused(request, "instanceGroupManagers.deleteInstances")
        if refused is not None:
            return refused
        pool = self._pool(request.match_info["group"])
        body = await request.json()
        names = [each.rpartition("/")[2] for each in body["instances"]]
        if pool is None:
            return _error(404, "NOT_FOUND", "The resource was not found")
        gone = [name for name in names if name in pool.nodes]
        if len(gone) < len(names) and not body.get("skipInstancesOnValidationError"):
            return _error(400, "INVALID_ARGUMENT", "Instance is not a member of the group")
        pool.nodes = [name for name in pool.nodes if name not in gone]
        pool.target -= len(gone)
        return web.json_response({"name": "operation-compute", "status": "RUNNING"})

    def _refused(self, request: web.Request, method: str) -> web.Response | None:
        self._google.calls.append((method, request.path))
        if not self._google.accepts(request.headers.get("Authorization", "")):
            return _error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        if not self._google.refusals[method]:
            return None
        refusal: Refusal = self._google.refusals[method].popleft()
        return _error(_STATUS[refusal.code], refusal.code, refusal.message, refusal.reason)

    def _pool(self, group: str) -> Pool | None:
        pools = [pool for cluster in self._google.clusters.values() for pool in cluster.pools.values()]
        return next((pool for pool in pools if pool.group == group), None)


def _error(status: int, code: str, message: str, reason: str = "") -> web.Response:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}] if reason else []
    error = {"code": status, "status": code, "message": message, "details": details}
    return web.json_response({"error": error}, status=status)
