"""Everything that a job needs, on this machine and for one command: a bus, a master, a cluster-controller.

All of it runs below this process, on free loopback ports, with its state and logs in one folder. What dies is started
again. At the end everything is ended, with bounds: the controller first, so that it replaces nobody, then the workers,
then the rest.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from runtime import children
from runtime.errors import UserError
from runtime.nats_server import NatsServer
from tradewind.cli import processes
from tradewind.cli.client import Api, MasterAway, session
from tradewind.cli.supervise import Child, keep, tail_of

NATS_VARIABLE = "TRADEWIND_NATS_URL"
API_VARIABLES = "TRADEWIND_API_"
"""They are about another master."""
CLUSTER = "local"
START_S = 60.0
POLL_S = 0.05
REAP_EVERY_S = 0.5
WORKERS_GRACE_S = 6.0
ROLE_GRACE_S = 3.0
Say = Callable[[str], None]


class RoleProcess:
    """A role as `tradewind <name> …`, with its logs in a file."""

    def __init__(self, name: str, arguments: tuple[str, ...], environ: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        self._environ = environ
        self._folder = folder
        # Neither the folder a person is in nor the run's own is on the path: nothing there may shadow one of ours.
        self._command = (sys.executable, "-P", "-m", "tradewind", name, *arguments)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = await children.start(
                self._command, env=self._environ, cwd=self._folder, stdout=log, stderr=log, dies_with_us=True
            )

    async def wait_exit(self) -> int:
        return await self._process.wait() if self._process is not None else 0

    async def stop(self, grace_s: float) -> None:
        if self._process is not None and self._process.returncode is None:
            await children.end(self._process, grace_s)


class BusProcess:
    name = "nats-server"

    def __init__(self, folder: Path) -> None:
        self._server = NatsServer(folder / "bus")
        self.log_file = self._server.log_file

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def pid(self) -> int:
        return self._server.pid

    async def start(self) -> None:
        await self._server.start()

    async def wait_exit(self) -> int:
        return await self._server.wait_exit()

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


class LocalStack:
    def __init__(self, folder: Path, environ: Mapping[str, str], api: Api, say: Say) -> None:
        self.folder = folder
        self.api = api
        self.nats_url = environ.get(NATS_VARIABLE, "")
        self.left_behind: list[str] = []
        """Processes that did not end when they were asked to, and were killed."""
        self._environ = {name: value for name, value in environ.items() if not name.startswith(API_VARIABLES)}
        self._say = say
        self._children: dict[str, Child] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        if self.nats_url:
            self._say(f"starting master and cluster-controller on the bus at {NATS_VARIABLE}")
        else:
            self._say("starting nats-server, master and cluster-controller")
            bus = BusProcess(self.folder)
            await self._keep(bus, tasks)
            self.nats_url = bus.url
        environ = {**self._environ, NATS_VARIABLE: self.nats_url}
        port = self.api.url.rpartition(":")[2]
        await self._keep(RoleProcess("master", ("--api-port", port), environ, self.folder), tasks)
        cluster = (
            "--cluster",
            CLUSTER,
            "--run-dir",
            str(self.folder / "workers"),
            "--end-grace-s",
            f"{WORKERS_GRACE_S}",
        )
        await self._keep(RoleProcess("cluster", cluster, environ, self.folder), tasks)
        self._tasks.append(tasks.create_task(self._reap(), name="stack-reap"))
        await self._until_ready()

    async def stop(self) -> None:
        """Bounded: at most about the sum of the graces."""
        for task in self._tasks:
            task.cancel()
        await self._end("cluster", WORKERS_GRACE_S + ROLE_GRACE_S)
        # What a controller that died has left. SIGTERM would be a notice, to leave in good order; SIGINT is to leave.
        processes.send(self._adopted(), signal.SIGINT)
        await self._until_workers_left(ROLE_GRACE_S)
        self._kill_workers()
        for name in reversed(tuple(self._children)):
            await self._end(name, ROLE_GRACE_S)

    def kill(self) -> None:
        """Whatever is still there, at once."""
        self.left_behind += processes.kill_all_below(os.getpid())
        processes.reap_adopted(())

    async def _keep(self, child: Child, tasks: asyncio.TaskGroup) -> None:
        self._children[child.name] = child
        await child.start()
        self._tasks.append(tasks.create_task(keep(child, self._say), name=f"stack-{child.name}"))

    async def _end(self, name: str, grace_s: float) -> None:
        child = self._children.pop(name, None)
        if child is not None:
            await child.stop(grace_s)

    async def _until_ready(self) -> None:
        for _ in range(round(START_S / POLL_S)):
            if await self._is_ready():
                return
            await asyncio.sleep(POLL_S)
        log = self.folder / "master.log"
        raise UserError("The master did not become ready.", f"look at {self.folder}", tail_of(log))

    async def _is_ready(self) -> bool:
        try:
            health = await self.api.health()
        except MasterAway:
            return False
        return health.ok and health.clusters > 0

    async def _reap(self) -> None:
        while True:
            processes.reap_adopted(self._own_pids())
            await asyncio.sleep(REAP_EVERY_S)

    def _own_pids(self) -> set[int]:
        return {child.pid for child in self._children.values()}

    def _adopted(self) -> list[int]:
        own = self._own_pids()
        return [pid for pid in processes.children_of(os.getpid()) if pid not in own]

    def _workers_and_below(self) -> list[int]:
        """All below this process but the roles and what is below them: workers, hosts, trainers."""
        roles = {pid for own in self._own_pids() for pid in (own, *processes.alive_below(own))}
        return [pid for pid in processes.alive_below(os.getpid()) if pid not in roles]

    async def _until_workers_left(self, timeout_s: float) -> None:
        for _ in range(round(timeout_s / POLL_S)):
            processes.reap_adopted(self._own_pids())
            if not self._workers_and_below():
                return
            await asyncio.sleep(POLL_S)

    def _kill_workers(self) -> None:
        for pid in self._workers_and_below():
            self.left_behind.append(processes.describe(pid))
            processes.send([pid], signal.SIGKILL)


@asynccontextmanager
async def local_stack(environ: Mapping[str, str], say: Say, *, keep_folder: bool = False) -> AsyncIterator[LocalStack]:
    children.become_subreaper()
    folder = Path(tempfile.mkdtemp(prefix="tradewind-"))
    async with session() as opened:
        stack = LocalStack(folder, environ, Api(opened, f"http://127.0.0.1:{children.free_port()}"), say)
        try:
            async with asyncio.TaskGroup() as tasks:
                try:
                    await stack.start(tasks)
                    yield stack
                finally:
                    await stack.stop()
        finally:
            stack.kill()
            if keep_folder:
                say(f"logs and state are in {folder}")
            else:
                shutil.rmtree(folder, ignore_errors=True)
