"""The routes of the master's HTTP API, in JSON.

A refusal is a `Problem` with a hint. A handler that fails is a defect: aiohttp logs its traceback and answers 500, and
the process continues.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

import msgspec
from aiohttp import web

from controlplane.api.access import guard
from controlplane.api.feeds import Feeds, is_set, number_of
from controlplane.api.responses import json_answer
from controlplane.api.service import JobService, problems_of
from controlplane.jobs import errors
from controlplane.jobs.errors import BUS_AWAY
from messages.api import Problem, ScaleRequest, StopRequest
from messages.budgets import BudgetRequest
from messages.decoding import Undecodable, decode
from messages.jobs import JobSpec
from runtime.errors import BusUnavailable, UserError
from runtime.problems import Checks, all_problems

MAX_BODY_BYTES = 512 * 1024
LARGE_BODY_BYTES = 16 * 1024
"""Bytes above which a body is decoded in a thread, because that takes long and would block the event loop."""
SHUTDOWN_S = 2.0
WORKERS_ON_A_PAGE = 500
STEPS = re.compile(r"([1-9][0-9]{0,11})?\Z")

REQUEST_REFUSED = "The request is refused:"

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class BodyCompressed(UserError):
    def __init__(self, encoding: str) -> None:
        super().__init__(
            f"The body of the request is compressed ({encoding[:50]!r}), but the API accepts only plain JSON.",
            "send it without Content-Encoding",
        )


_STATUS_OF: dict[type[UserError], HTTPStatus] = {
    errors.JobUnknown: HTTPStatus.NOT_FOUND,
    errors.JobExists: HTTPStatus.CONFLICT,
    errors.JobUnreadable: HTTPStatus.CONFLICT,
    BodyCompressed: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.RemoveRefused: HTTPStatus.CONFLICT,
    errors.ScaleRefused: HTTPStatus.CONFLICT,
    errors.ReloadRefused: HTTPStatus.CONFLICT,
    errors.BudgetRefused: HTTPStatus.CONFLICT,
    errors.CostUnknown: HTTPStatus.CONFLICT,
    errors.NotRecorded: HTTPStatus.CONFLICT,
    errors.NotLeading: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.HandedOver: HTTPStatus.SERVICE_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Api:
    service: JobService

    async def submit(self, request: web.Request) -> web.Response:
        spec = await _body(request, JobSpec, errors.JOB_REFUSED, problems_of)
        return json_answer(await self.service.submit(spec, replace=is_set(request, "replace")), HTTPStatus.CREATED)

    async def jobs(self, request: web.Request) -> web.Response:
        """Lists all jobs, or `limit` of them; `after` is the last job of the previous page."""
        return json_answer(self.service.job_list(request.query.get("after", ""), _limit(request)))

    async def job(self, request: web.Request) -> web.Response:
        return json_answer(self.service.view(request.match_info["name"]))

    async def workers(self, request: web.Request) -> web.Response:
        first, at_most = number_of(request, "first") or 0, min(_limit(request) or WORKERS_ON_A_PAGE, WORKERS_ON_A_PAGE)
        return json_answer(self.service.workers(request.match_info["name"], first, at_most))

    async def remove(self, request: web.Request) -> web.Response:
        return json_answer(await self.service.remove(request.match_info["name"]))

    async def stop(self, request: web.Request) -> web.Response:
        name, wanted = request.match_info["name"], StopRequest()
        self.service.job(name)
        if request.body_exists:
            wanted = await _body(request, StopRequest, REQUEST_REFUSED)
        return json_answer(await self.service.stop_job(name, wanted.grace_s))

    async def scale(self, request: web.Request) -> web.Response:
        wanted = await _body(request, ScaleRequest, REQUEST_REFUSED)
        return json_answer(await self.service.scale(request.match_info["name"], wanted.workers))

    async def reload(self, request: web.Request) -> web.Response:
        return json_answer(await self.service.reload(request.match_info["name"]))

    async def cost(self, request: web.Request) -> web.Response:
        steps = request.query.get("steps", "")
        if not STEPS.match(steps):
            raise UserError(f"`steps` is {steps!r}, but must be a whole number above 0.", "?steps=10000")
        return json_answer(await self.service.cost(request.match_info["name"], int(steps) if steps else None))

    async def budget(self, request: web.Request) -> web.Response:
        return json_answer(await self.service.budgets.view(request.match_info["name"]))

    async def raise_budget(self, request: web.Request) -> web.Response:
        wanted = await _body(request, BudgetRequest, REQUEST_REFUSED)
        return json_answer(await self.service.budgets.raise_to(request.match_info["name"], wanted.usd))

    async def offers(self, _request: web.Request) -> web.Response:
        return json_answer(await self.service.fresh_offers())

    async def health(self, _request: web.Request) -> web.Response:
        health = self.service.health()
        return json_answer(health, HTTPStatus.OK if health.ok else HTTPStatus.SERVICE_UNAVAILABLE)

    async def version(self, _request: web.Request) -> web.Response:
        return json_answer(self.service.version())


class ApiServer:
    """Serves on an open socket; clients that connect before `start` wait."""

    def __init__(self, service: JobService, listener: socket.socket, token: str) -> None:
        self._listener = listener
        self._feeds = Feeds(service)
        app = web.Application(middlewares=[_tell_problems, guard(token)], client_max_size=MAX_BODY_BYTES)
        app.add_routes(routes(Api(service), self._feeds))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=SHUTDOWN_S,
            keepalive_timeout=75.0,
            auto_decompress=False,
        )

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    async def start(self) -> None:
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()

    async def close(self) -> None:
        """Ends the streams, and waits for requests in progress up to `SHUTDOWN_S`."""
        self._feeds.close()
        await self._runner.cleanup()
        self._listener.close()


def routes(api: Api, feeds: Feeds) -> list[web.RouteDef]:
    return [
        web.post("/v1/jobs", api.submit),
        web.get("/v1/jobs", api.jobs),
        web.get("/v1/jobs/{name}", api.job),
        web.get("/v1/jobs/{name}/workers", api.workers),
        web.delete("/v1/jobs/{name}", api.remove),
        web.post("/v1/jobs/{name}/stop", api.stop),
        web.post("/v1/jobs/{name}/scale", api.scale),
        web.post("/v1/jobs/{name}/reload", api.reload),
        web.get("/v1/jobs/{name}/cost", api.cost),
        web.get("/v1/jobs/{name}/budget", api.budget),
        web.post("/v1/jobs/{name}/budget", api.raise_budget),
        web.get("/v1/jobs/{name}/logs", feeds.logs),
        web.get("/v1/jobs/{name}/events", feeds.events),
        web.get("/v1/jobs/{name}/progress", feeds.progress),
        web.get("/v1/events", feeds.events),
        web.get("/v1/offers", api.offers),
        web.get("/healthz", api.health),
        web.get("/version", api.version),
    ]


def open_listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        raise UserError(
            f"The API cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}.",
            "end the process that uses it, or choose another port with --api-port",
        ) from error


@web.middleware
async def _tell_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except UserError as error:
        status = _STATUS_OF.get(type(error), HTTPStatus.BAD_REQUEST)
        leader = "" if isinstance(error, errors.NotLeading) else None
        return json_answer(Problem(error.message, error.hint, error.problems, leader), status)
    except BusUnavailable as error:
        return json_answer(
            Problem(f"{BUS_AWAY.capitalize()}: {error}.", "try again in a moment"), HTTPStatus.SERVICE_UNAVAILABLE
        )
    except web.HTTPException as error:
        if error.status < HTTPStatus.BAD_REQUEST:
            raise
        hint = "GET /v1/jobs" if error.status == HTTPStatus.NOT_FOUND else ""
        return json_answer(Problem(f"{request.method} {request.path}: {error.reason}.", hint), HTTPStatus(error.status))


def _limit(request: web.Request) -> int | None:
    limit = number_of(request, "limit")
    if limit == 0:
        raise UserError("`limit` is 0, but must be at least 1.", "?limit=100")
    return limit


async def _body(request: web.Request, wanted: type[T], refusal: str, checks: Checks[T] = lambda value: ()) -> T:
    """Decodes the body. Raises `UserError` with all problems and their paths."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise BodyCompressed(encoding)
    try:
        payload = await request.read()
    except web.RequestPayloadError as error:
        raise UserError(f"The body of the request cannot be read: {error}.") from error
    if len(payload) > LARGE_BODY_BYTES:
        return await asyncio.to_thread(_decoded, payload, wanted, refusal, checks)
    return _decoded(payload, wanted, refusal, checks)


def _decoded(payload: bytes, wanted: type[T], refusal: str, checks: Checks[T]) -> T:
    try:
        data = decode(payload, object)
    except Undecodable as error:
        raise UserError(f"The body of the request is not JSON: {error}.") from error
    found = all_problems(wanted, data, checks)
    if found:
        raise UserError(refusal, "correct these fields", tuple(str(problem) for problem in found))
    return msgspec.convert(data, wanted)
