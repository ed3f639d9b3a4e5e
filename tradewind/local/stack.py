"""The local stack of one command: a bus, a master and a cluster-controller on this machine.

All parts are descendants of this process, use free loopback ports, and store state and logs in one folder. A part that
ends is restarted. At the end all parts end within time limits: the controller first, so that it starts no replacement,
then the workers, then the rest.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

from agents.worker.leftovers import end_cgroups
from runtime import children
from tradewind.client.api import Api, session
from tradewind.client.errors import MasterAway
from tradewind.local import processes
from tradewind.local.guard import MARK, workers_folder
from tradewind.local.parts import BusServer, Part, StackFailed, controller, guard, keep, master, tail_of

NATS_VARIABLE = "TRADEWIND_NATS_URL"
NATS_VARIABLES = "TRADEWIND_NATS_"
API_VARIABLES = "TRADEWIND_API_"
"""Variables of another bus and another master, which the stack does not use."""
CLUSTER = "local"
START_S = 60.0
POLL_S = 0.05
REAP_EVERY_S = 0.5
WORKERS_GRACE_S = 6.0
ROLE_GRACE_S = 3.0
Say = Callable[[str], None]


class LocalStack:
    roles = "master and cluster-controller"
    clusters = 1
    """Clusters that must report before the stack is ready."""

    def __init__(self, folder: Path, environ: Mapping[str, str], nats_url: str, api: Api, say: Say) -> None:
        self.folder = folder
        self.api = api
        self.nats_url = nats_url
        self.left_behind: list[str] = []
        """Processes that did not end on request and were killed."""
        others = (API_VARIABLES,) if nats_url else (API_VARIABLES, NATS_VARIABLES)
        self._environ = {name: value for name, value in environ.items() if not name.startswith(others)}
        self._say = say
        self._parts: dict[str, Part] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._reaper = processes.Reaper()

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        await self._start(guard(self._environ, self.folder))
        if self.nats_url:
            self._say(f"starting {self.roles} on the bus of {NATS_VARIABLE}")
        else:
            self._say(f"starting nats-server, {self.roles}")
            bus = BusServer(self.folder)
            await self._keep(bus, tasks)
            self.nats_url = bus.url
        environ = {**self._environ, NATS_VARIABLE: self.nats_url, MARK: str(self.folder)}
        await self._start_roles(environ, tasks)
        self._tasks.append(tasks.create_task(self._reap(), name="stack-reap"))
        await self._until_ready()

    async def _start_roles(self, environ: Mapping[str, str], tasks: asyncio.TaskGroup) -> None:
        await self._keep(master(self._api_port(), environ, self.folder), tasks)
        workers = ("--run-dir", str(workers_folder(self.folder)), "--end-grace-s", f"{WORKERS_GRACE_S}")
        await self._keep(controller(("--cluster", CLUSTER, *workers), environ, self.folder), tasks)

    async def _end_workers(self) -> None:
        await self._end("cluster-controller", WORKERS_GRACE_S + ROLE_GRACE_S)

    async def stop(self) -> None:
        """Ends all parts; takes at most about the sum of the graces."""
        for task in self._tasks:
            task.cancel()
        await self._end_workers()
        # Workers of a controller that died. SIGTERM would be a notice with a hand-over; SIGINT ends them at once.
        children.send(self._adopted(), signal.SIGINT)
        await self._until_workers_left(ROLE_GRACE_S)
        self._kill_workers()
        for name in reversed(tuple(self._parts)):
            await self._end(name, ROLE_GRACE_S)

    def kill(self) -> None:
        """Kills all descendants that remain."""
        self.left_behind += processes.kill_all_below(os.getpid())
        end_cgroups(workers_folder(self.folder))
        self._reaper.reap(())

    async def _start(self, part: Part) -> None:
        self._parts[part.name] = part
        await part.start()

    async def _keep(self, part: Part, tasks: asyncio.TaskGroup) -> None:
        await self._start(part)
        self._tasks.append(tasks.create_task(keep(part, self._say), name=f"stack-{part.name}"))

    async def _end(self, name: str, grace_s: float) -> None:
        part = self._parts.pop(name, None)
        if part is not None:
            await part.stop(grace_s)

    def _api_port(self) -> tuple[str, ...]:
        return ("--api-port", self.api.url.rpartition(":")[2])

    async def _until_ready(self) -> None:
        for _ in range(round(START_S / POLL_S)):
            if await self._is_ready():
                return
            await asyncio.sleep(POLL_S)
        log = self.folder / "master.log"
        raise StackFailed("The master did not become ready:", f"look at {self.folder}", tail_of(log))

    async def _is_ready(self) -> bool:
        try:
            health = await self.api.health()
        except MasterAway:
            return False
        return health.ok and health.clusters >= self.clusters

    async def _reap(self) -> None:
        while True:
            self._reaper.reap(self._own_pids())
            await asyncio.sleep(REAP_EVERY_S)

    def _own_pids(self) -> set[int]:
        return {part.pid for part in self._parts.values()}

    def _adopted(self) -> list[int]:
        own = self._own_pids()
        return [pid for pid in children.children_of(os.getpid()) if pid not in own]

    def _workers_and_below(self) -> list[int]:
        """Descendants that are neither roles nor descendants of roles: workers, hosts, trainers."""
        roles = {pid for own in self._own_pids() for pid in (own, *children.alive_below(own))}
        return [pid for pid in children.alive_below(os.getpid()) if pid not in roles]

    async def _until_workers_left(self, timeout_s: float) -> None:
        for _ in range(round(timeout_s / POLL_S)):
            self._reaper.reap(self._own_pids())
            if not self._workers_and_below():
                return
            await asyncio.sleep(POLL_S)

    def _kill_workers(self) -> None:
        for pid in self._workers_and_below():
            self.left_behind.append(processes.describe(pid))
            children.send([pid], signal.SIGKILL)


Stack = TypeVar("Stack", bound=LocalStack)


@asynccontextmanager
async def local_stack(
    environ: Mapping[str, str], say: Say, *, nats_url: str = "", keep_folder: bool = False
) -> AsyncIterator[LocalStack]:
    """A stack with its own bus, or on the bus at `nats_url`, whose current master it replaces."""

    def build(folder: Path, api: Api) -> LocalStack:
        return LocalStack(folder, environ, nats_url, api, say)

    async with standing(build, say, keep_folder=keep_folder) as stack:
        yield stack


@asynccontextmanager
async def standing(build: Callable[[Path, Api], Stack], say: Say, *, keep_folder: bool) -> AsyncIterator[Stack]:
    children.become_subreaper()
    with own_folder(say, keep=keep_folder) as folder:
        async with session() as opened:
            stack = build(folder, Api(opened, f"http://127.0.0.1:{children.free_port()}"))
            try:
                async with asyncio.TaskGroup() as tasks:
                    try:
                        await stack.start(tasks)
                        yield stack
                    finally:
                        await stack.stop()
            finally:
                stack.kill()


@contextmanager
def own_folder(say: Say, *, keep: bool) -> Iterator[Path]:
    """The folder for state and logs of a stack. It is removed at the end, unless the stack failed."""
    folder = Path(tempfile.mkdtemp(prefix="tradewind-"))
    kept = keep
    try:
        yield folder
    except* StackFailed:
        kept = True
        raise
    finally:
        if kept:
            say(f"logs and state are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
