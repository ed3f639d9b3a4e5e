"""A fake master: an API with the answers of a test, on a free port, that can be restarted."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from messages.api import EventLine, Health, JobList, JobView, LogLine, Problem, ProgressLine, Version
from messages.budgets import BudgetView
from messages.costs import CostView
from messages.criteria import WhenSpent
from messages.events import JOB_ENDS
from messages.ids import Generation, JobName
from messages.jobs import JobSpec
from messages.workers import WrittenCheckpoint
from runtime.children import free_port

STOPPING = "stopped by a person; waiting up to 40 s for worker a to end the loop body and save"


def a_view(name: str = "mnist", phase: str = "running", **changes: Any) -> JobView:
    view = JobView(
        name=JobName(name),
        phase=phase,
        why="a world of 2",
        generation=Generation(1),
        world_size=2,
        wanted=2,
        failures=0,
        submitted_at=1_700_000_000.0,
    )
    return msgspec.structs.replace(view, **changes)


@dataclass
class FakeMaster:
    """Its streams send all lines, also new ones, until the job has ended or the master stops."""

    port: int = field(default_factory=free_port)
    token: str = ""
    leader: str | None = None
    """The URL of the leader, if this master is a standby."""
    refused: int = 0
    """Number of requests that the standby refused."""
    views: dict[str, JobView] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    """Jobs with unreadable records."""
    lines: list[LogLine] = field(default_factory=list)
    events: list[EventLine] = field(default_factory=list)
    progress: list[ProgressLine] = field(default_factory=list)
    submitted: list[JobSpec] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    stops_after: int = 0
    """Number of requests for a stopping job until it has ended."""
    saves: WrittenCheckpoint | None = None
    """The checkpoint that a stop writes."""
    stopped_with: bytes = b""
    """The body of the last stop."""
    cost_micro_usd: int = 0
    fleet: str = ""
    streams: int = 0
    """Number of opened streams."""
    on_submit: Callable[["FakeMaster"], None] = lambda master: None
    _runner: web.AppRunner | None = None
    _away: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        return {"TRADEWIND_API_URL": self.url, **({"TRADEWIND_API_TOKEN": self.token} if self.token else {})}

    async def start(self) -> None:
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.post("/v1/jobs", self._submit),
                web.get("/v1/jobs", self._jobs),
                web.get("/v1/jobs/{name}", self._job),
                web.delete("/v1/jobs/{name}", self._remove),
                web.post("/v1/jobs/{name}/stop", self._stop),
                web.post("/v1/jobs/{name}/scale", self._scale),
                web.post("/v1/jobs/{name}/reload", self._reload),
                web.get("/v1/jobs/{name}/cost", self._cost),
                web.get("/v1/jobs/{name}/budget", self._budget),
                web.get("/v1/jobs/{name}/logs", self._logs),
                web.get("/v1/jobs/{name}/events", self._job_events),
                web.get("/v1/jobs/{name}/progress", self._progress),
                web.get("/v1/events", self._job_events),
                web.get("/healthz", self._health),
                web.get("/version", self._version),
            ]
        )
        self._away = asyncio.Event()
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        listener = socket.create_server(("127.0.0.1", self.port))
        await web.SockSite(self._runner, listener).start()

    async def stop(self) -> None:
        self._away.set()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def end(self, name: str, phase: str, why: str = "") -> None:
        """Adds the last event and sets its phase."""
        kind = next(kind for kind, reported in JOB_ENDS.items() if reported == phase)
        self.events.append(
            EventLine(at=float(len(self.events)), scope=name, kind=kind, text=f"the job has {phase}", why=why)
        )
        known = self.views.get(name) or a_view(name)
        self.views[name] = a_view(name, phase, why=why, checkpoint=known.checkpoint, step=known.step)

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return self._json(Problem("The API needs the right token."), 401)
        if self.leader is not None:
            self.refused += 1
            return self._json(Problem("This master is a standby.", leader=self.leader), 503)
        name = request.match_info.get("name")
        if name in self.unread:
            problem = Problem(f"There is a job {name!r}, but its record cannot be read.", "a master of its version")
            return self._json(problem, 409)
        if name is not None and name not in self.views:
            return self._json(Problem(f"There is no job {name!r}."), 404)
        self.asked.append(f"{request.method} {request.path}")
        return await handler(request)

    async def _cost(self, request: web.Request) -> web.Response:
        return self._json(
            CostView(
                job=JobName(request.match_info["name"]),
                micro_usd=self.cost_micro_usd,
                nodes_micro_usd=self.cost_micro_usd,
                egress_micro_usd=0,
                micro_usd_per_hour=0,
                machines=0,
                node_s=0.0,
                by_activity={},
            )
        )

    async def _budget(self, request: web.Request) -> web.Response:
        return self._json(
            BudgetView(
                job=JobName(request.match_info["name"]),
                micro_usd_total=None,
                when_spent=WhenSpent.PAUSE,
                micro_usd=self.cost_micro_usd,
                reserve_micro_usd=0,
            )
        )

    async def _submit(self, request: web.Request) -> web.Response:
        spec = msgspec.json.decode(await request.read(), type=JobSpec)
        if request.query.get("replace") == "1":
            self.views.pop(spec.name, None)
        if spec.name in self.views:
            return self._json(Problem(f"There is already a job {spec.name!r}.", "choose another name"), 409)
        self.submitted.append(spec)
        self.views[spec.name] = a_view(spec.name, "waiting", wanted=spec.workers.max)
        self.on_submit(self)
        return self._json(self.views[spec.name], 201)

    async def _jobs(self, request: web.Request) -> web.Response:
        return self._json(JobList(tuple(self.views.values()), tuple(map(JobName, self.unread))))

    async def _job(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if self.views[name].phase == "reshaping":
            self.stops_after -= 1
            if self.stops_after <= 0:
                self._saves_and_ends(name)
        return self._json(self.views[name])

    async def _remove(self, request: web.Request) -> web.Response:
        view = self.views[request.match_info["name"]]
        if view.phase == "running":
            return self._json(Problem(f"Job {view.name!r} is running.", f"tradewind stop {view.name}"), 409)
        return self._json(self.views.pop(view.name))

    async def _stop(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.stopped_with = await request.read()
        if self.stops_after:
            self.views[name] = msgspec.structs.replace(
                self.views[name], phase="reshaping", why=STOPPING, stop_grace_s=40.0
            )
        else:
            self._saves_and_ends(name)
        return self._json(self.views[name])

    def _saves_and_ends(self, name: str) -> None:
        saves = self.saves or self.views[name].checkpoint
        self.views[name] = msgspec.structs.replace(self.views[name], checkpoint=saves)
        self.end(name, "stopped", "stopped by a person")

    async def _scale(self, request: web.Request) -> web.Response:
        name, workers = request.match_info["name"], (await request.json())["workers"]
        self.views[name] = msgspec.structs.replace(self.views[name], wanted=workers)
        return self._json(self.views[name])

    async def _reload(self, request: web.Request) -> web.Response:
        view = self.views[request.match_info["name"]]
        return self._json(msgspec.structs.replace(view, outdated=view.world_size))

    async def _health(self, request: web.Request) -> web.Response:
        return self._json(Health(ok=True, why="", jobs=len(self.views), clusters=1, dropped={}))

    async def _version(self, request: web.Request) -> web.Response:
        return self._json(Version("0.1.0", 1, 1, self.fleet))

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        rank = request.query.get("rank")
        return await self._stream(request, self.lines, lambda line: rank is None or line.rank == int(rank))

    async def _job_events(self, request: web.Request) -> web.StreamResponse:
        return await self._stream(request, self.events, lambda event: True)

    async def _progress(self, request: web.Request) -> web.StreamResponse:
        return await self._stream(request, self.progress, lambda message: True)

    async def _stream(
        self, request: web.Request, known: list[Any], wanted: Callable[[Any], bool]
    ) -> web.StreamResponse:
        tail = request.query.get("tail")
        first = max(0, len(known) - int(tail)) if tail is not None else 0
        self.streams += 1
        response = web.StreamResponse()
        await response.prepare(request)
        sent = first
        while not self._away.is_set():
            for item in known[sent:]:
                if wanted(item):
                    await response.write(msgspec.json.encode(item) + b"\n")
            sent = len(known)
            name = request.match_info.get("name")
            over = name is not None and self.views[name].phase in JOB_ENDS.values()
            if "follow" not in request.query or over:
                break
            await response.write(b"\n")
            await asyncio.sleep(0.02)
        await response.write_eof()
        return response

    def _json(self, body: msgspec.Struct, status: int = 200) -> web.Response:
        return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
