"""The stage: a nats-server, two masters, three cluster-controllers of plain processes, all on loopback.

A part that ends is started again after a pause, as a Deployment would do. An exit that no fault explains is noted.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from messages.api import Health
from runtime import children, proc
from runtime.errors import UserError
from tradewind.client.api import Api, session
from tradewind.client.errors import MasterAway
from tradewind.local import processes
from tradewind.local.guard import marked
from tradewind.local.parts import OwnProcess, Part
from tradewind.local.stack import LocalStack, Say, standing

CLUSTERS = ("east", "west", "north")
MASTERS = ("master-1", "master-2")
STORE_PORTS = 60
RESTART_S = 2.0
"""From the end of a part to its next start."""
END_GRACE_S = 6.0
ROLE_GRACE_S = 3.0


@dataclass(frozen=True)
class Exit:
    """A part that ended although no fault ended it."""

    part: str
    code: int


class Stage(LocalStack):
    roles = "two masters and three cluster-controllers"
    clusters = len(CLUSTERS)

    def __init__(self, folder: Path, environ: Mapping[str, str], api: Api, say: Say) -> None:
        super().__init__(folder, environ, "", api, say)
        self.exits: list[Exit] = []
        self.urls = {MASTERS[0]: api.url, MASTERS[1]: f"http://127.0.0.1:{children.free_port()}"}
        self._expected: set[int] = set()

    def pid(self, name: str) -> int:
        """The pid of a part; 0 while it is not running."""
        part = self._parts.get(name)
        pid = part.pid if part is not None else 0
        return pid if pid and not children.is_dead(pid) else 0

    def send(self, name: str, number: signal.Signals) -> int:
        """Sends a signal, after which the part's end is expected; returns the pid, or 0 if it is not running."""
        pid = self.pid(name)
        if pid:
            if number in (signal.SIGKILL, signal.SIGTERM):
                self._expected.add(pid)
            children.send([pid], number)
        return pid

    def agents(self, job: str) -> list[int]:
        """The worker-agents of a job, in the order of their start."""
        found = [pid for pid in marked(str(self.folder)) if _is_agent(pid, job) and not children.is_dead(pid)]
        return sorted(found)

    def strangers(self) -> list[str]:
        """All processes that jobs have started, including orphans."""
        return [processes.describe(pid) for pid in self._workers_and_below()]

    def everything(self) -> list[str]:
        found = {*children.alive_below(os.getpid()), *(pid for pid in marked(str(self.folder)) if pid != os.getpid())}
        return [processes.describe(pid) for pid in sorted(found)]

    def logs(self) -> list[Path]:
        return sorted([*self.folder.glob("*.log"), *self.folder.glob("workers-*/*.log")])

    async def health(self, name: str) -> Health | None:
        async with session() as opened:
            with contextlib.suppress(MasterAway, UserError):
                return await Api(opened, self.urls[name]).health()
        return None

    async def leader(self) -> str:
        """The name of the master that leads; the first if that is not known."""
        for name in MASTERS:
            health = await self.health(name) if self.pid(name) else None
            if health is not None and health.role == "leader":
                return name
        return MASTERS[0]

    async def _start_roles(self, environ: Mapping[str, str], tasks: asyncio.TaskGroup) -> None:
        for name in MASTERS:
            await self._keep(OwnProcess(name, ("tradewind", "master", *self._flags(name)), environ, self.folder), tasks)
        for cluster in CLUSTERS:
            run_dir = str(self.folder / f"workers-{cluster}")
            flags = ("--cluster", cluster, "--run-dir", run_dir, "--end-grace-s", f"{END_GRACE_S}")
            await self._keep(OwnProcess(cluster, ("tradewind", "cluster", *flags), environ, self.folder), tasks)

    async def _is_ready(self) -> bool:
        health = await self.health(await self.leader())
        return health is not None and health.role == "leader" and health.clusters >= self.clusters

    async def _end_workers(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for cluster in CLUSTERS:
                tasks.create_task(self._end(cluster, END_GRACE_S + ROLE_GRACE_S), name=f"end-{cluster}")

    async def _keep(self, part: Part, tasks: asyncio.TaskGroup) -> None:
        await self._start(part)
        self._tasks.append(tasks.create_task(self._restart(part), name=f"stage-{part.name}"))

    async def _restart(self, part: Part) -> None:
        while True:
            pid = part.pid
            code = await part.wait_exit()
            if pid not in self._expected:
                self.exits.append(Exit(part.name, code))
                self._say(f"{part.name} ended by itself with {code}")
            await asyncio.sleep(RESTART_S)
            await part.start()

    def _flags(self, name: str) -> tuple[str, ...]:
        first = children.free_port()
        first = min(first, 65_535 - STORE_PORTS)
        return ("--api-port", self.urls[name].rpartition(":")[2], "--store-ports", f"{first}-{first + STORE_PORTS}")


@contextlib.asynccontextmanager
async def a_stage(say: Say) -> AsyncIterator[Stage]:
    """A running stage. Its folder stays, unless the run is interrupted."""
    folders: list[Path] = []

    def build(folder: Path, api: Api) -> Stage:
        folders.append(folder)
        return Stage(folder, {**os.environ, "OMP_NUM_THREADS": "1"}, api, say)

    try:
        async with standing(build, say, keep_folder=True) as stage:
            yield stage
    except asyncio.CancelledError:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _is_agent(pid: int, job: str) -> bool:
    words = proc.arguments(pid)
    return b"worker" in words and b"--job" in words and words[words.index(b"--job") + 1] == job.encode()
