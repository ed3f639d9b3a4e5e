"""Places that are plain processes: one worker-agent each, in its own session, so that it outlives the controller.

`subprocess` starts them instead of the event loop, because an event loop that closes kills its children.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from agents.cluster import machine
from agents.cluster.events import AgentEnded, ClusterEvent, PlaceEnded, PlaceFailed, PlaceStarted
from agents.cluster.machine import Gpus
from agents.cluster.settings import ClusterSettings
from agents.cluster.state import KnownPlace
from messages.clusters import WorkerTemplate
from messages.ids import JobName
from runtime import children
from runtime.clock import Clock
from runtime.logs import logger

HURRY_S = 1.0
"""Seconds between two SIGTERMs. The first is a notice; after the second the worker leaves at once."""
LOGS_AT_MOST = 200
LAST_LINES_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Child:
    uid: str
    pid: int
    birth: str
    child: "subprocess.Popen[bytes] | None"
    """None if an earlier controller started the process; its exit code is then unknown."""
    gpus: Gpus = ()


class LocalPlaces:
    """The worker processes of this machine. Posts PlaceStarted, PlaceFailed, AgentEnded and PlaceEnded."""

    def __init__(
        self,
        settings: ClusterSettings,
        post: Callable[[ClusterEvent], None],
        tasks: asyncio.TaskGroup,
        clock: Clock,
        *,
        alone: bool = False,
    ) -> None:
        """`tasks` owns the watchers. `alone`: this process has no children but agents and orphans of dead agents."""
        self._alone = alone
        self._settings = settings
        self._post = post
        self._tasks = tasks
        self._clock = clock
        self._held: dict[str, _Child] = {}
        self._gpus = machine.machine_gpus(settings.gpus, os.environ)
        self._ending: set[str] = set()
        """Uids of places for which `_end` runs."""
        self._ordered_to_end: set[str] = set()
        """Uids of places that got SIGTERM and were not killed since."""
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._log = logger(cluster=settings.cluster)

    def __contains__(self, uid: str) -> bool:
        return uid in self._held

    def start(self, uid: str, job: JobName, template: WorkerTemplate, departing: frozenset[str]) -> None:
        own_gpus = self._share(uid, template, departing)
        try:
            child = self._spawn(uid, job, template, own_gpus)
        except (OSError, ValueError) as error:
            self._log.warning("place_failed", uid=uid, job=job, why=str(error))
            self._post(PlaceFailed(self._clock.monotonic_s(), uid, str(error)))
            return
        self._hold(_Child(uid, child.pid, machine.birth_of(child.pid) or "", child, own_gpus))
        self._log.info("place_started", uid=uid, job=job, pid=child.pid)

    def adopt(self, places: Iterable[KnownPlace]) -> None:
        """Takes over the places of an earlier controller, or reports their end."""
        for place in places:
            pid = place.pid or machine.find_agent(place.uid) or 0
            birth = machine.birth_of(pid) if pid else None
            if birth is not None and (birth == place.birth or machine.carries(pid, place.uid)):
                self._log.info("place_adopted", uid=place.uid, job=place.job, pid=pid)
                self._hold(_Child(place.uid, pid, birth, None, machine.process_gpus(pid)))
            else:
                name = f"place/{place.uid}"
                self._watchers[place.uid] = self._tasks.create_task(self._sweep(place.uid), name=name)

    def recognise(self, uid: str, pid: int) -> bool:
        """Takes over a worker that is not in the record, if a controller on this machine started it."""
        birth = machine.birth_of(pid) if pid > 0 else None
        if uid in self._held or birth is None or not machine.carries(pid, uid):
            return False
        self._hold(_Child(uid, pid, birth, None, machine.process_gpus(pid)))
        return True

    async def end(self, uid: str, grace_s: float) -> None:
        held = self._held.get(uid)
        if held is None:
            self._ended(uid, "no process of it was running")
        elif uid not in self._ending:
            self._ending.add(uid)
            self._ordered_to_end.add(uid)
            try:
                await self._end(held, grace_s)
            finally:
                self._ending.discard(uid)

    async def kill_all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for held in self._held.values():
                tasks.create_task(self._kill_place(held.uid, held.pid), name=f"kill/{held.uid}")

    def forget_all(self) -> None:
        """Stops watching; the places continue."""
        for watcher in self._watchers.values():
            watcher.cancel()

    def logs_left(self) -> list[Path]:
        """Returns the outputs of workers that failed."""
        return [path for path in Path(self._settings.run_dir).glob("w*x*.log") if path.stem not in self._held]

    def _share(self, uid: str, template: WorkerTemplate, departing: frozenset[str]) -> Gpus:
        """Chooses GPUs for a place. GPUs of departing places are free for their replacements."""
        if not self._gpus or not template.divide_gpus or machine.GPU_VARIABLE in template.env:
            return ()
        held = [held.gpus for held in self._held.values() if held.uid not in departing]
        own = machine.share_gpus(self._gpus, held, template.slots)
        if not own:
            self._log.warning("too_few_gpus", uid=uid, gpus=len(self._gpus), ranks=template.slots)
        elif any(set(own) & set(others) for others in held):
            self._log.warning("gpus_shared", uid=uid, gpus=",".join(own), why="more ranks than GPUs on this machine")
        return own

    def _spawn(self, uid: str, job: JobName, template: WorkerTemplate, own_gpus: Gpus) -> "subprocess.Popen[bytes]":
        settings = self._settings
        run_dir = Path(settings.run_dir)
        run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = [
            *(*settings.worker_command, "--job", job, "--cluster", settings.cluster, "--uid", uid),
            *("--slots", str(template.slots), "--run-dir", settings.run_dir),
            *(("--python", template.python) if template.python is not None else ()),
        ]
        visible = {machine.GPU_VARIABLE: ",".join(own_gpus)} if own_gpus else {}
        environment = {**os.environ, **_for_agent(template.env), **visible, **self._environment(uid)}
        if settings.echo:
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        self._drop_old_logs()
        with self._log_file(uid).open("ab") as output:
            return subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self, uid: str) -> dict[str, str]:
        settings = self._settings
        given = {"TRADEWIND_NATS_URL": settings.nats_url, "TRADEWIND_REGION": settings.region, machine.MARK: uid}
        credentials = settings.nats_credentials
        return given if credentials is None else {**given, "TRADEWIND_NATS_CREDENTIALS": credentials}

    def _hold(self, held: _Child) -> None:
        self._held[held.uid] = held
        self._watchers[held.uid] = self._tasks.create_task(self._watch(held), name=f"place/{held.uid}")
        self._post(PlaceStarted(self._clock.monotonic_s(), held.uid, held.pid, held.birth))

    async def _watch(self, held: _Child) -> None:
        await children.wait_exit(held.pid)
        code = children.exit_code(held.pid) if held.child is not None else None
        how = self._how(held, code)
        self._held[held.uid] = replace(held, gpus=())
        ended_well = code == 0 or (held.uid in self._ordered_to_end and code in (None, -signal.SIGTERM))
        self._post(AgentEnded(self._clock.monotonic_s(), held.uid, how))
        # Before the agent is reaped: until then no other process can have its pid.
        await self._kill_place(held.uid, held.pid)
        if held.child is not None:
            held.child.wait()
        if ended_well:
            self._log_file(held.uid).unlink(missing_ok=True)
        self._held.pop(held.uid)
        self._watchers.pop(held.uid)
        self._ended(held.uid, how)

    async def _sweep(self, uid: str) -> None:
        """Ends the processes that a dead agent left behind."""
        await self._kill_place(uid, leader=None)
        self._watchers.pop(uid)
        self._ended(uid, "it ended while no cluster-controller ran")

    async def _end(self, held: _Child, grace_s: float) -> None:
        hurry_s = min(HURRY_S, grace_s / 2)
        for wait_s in (hurry_s, grace_s - hurry_s):
            machine.send(held.pid, held.birth, signal.SIGTERM)
            if await children.wait_exit(held.pid, wait_s):
                return
        await self._kill_place(held.uid, held.pid)

    async def _kill_place(self, uid: str, leader: int | None) -> None:
        """Kills the agent and all processes that it left. Without a leader, only the mark identifies them."""
        self._ordered_to_end.discard(uid)
        left = await children.kill_until_none_async(lambda: self._left(uid, leader))
        if left:
            self._log.warning("place_not_empty", uid=uid, processes=left)
        await asyncio.to_thread(machine.end_cgroups, uid)

    async def _left(self, uid: str, leader: int | None) -> list[int]:
        return await asyncio.to_thread(machine.of_place, uid, leader) or await self._orphans()

    async def _orphans(self) -> list[int]:
        """Reaps and returns the orphans of dead agents. A live agent is a subreaper and takes its own orphans."""
        if not self._alone:
            return []
        born = await asyncio.to_thread(children.children_of, os.getpid())
        # The event loop starts and reaps agents, so a pid from the thread may by now belong to another process.
        agents = {held.pid for held in self._held.values()}
        orphans = [pid for pid in born if pid not in agents]
        for pid in orphans:
            children.reap(pid)
        return [pid for pid in orphans if children.parent_of(pid) == os.getpid()]

    def _ended(self, uid: str, why: str) -> None:
        output = self._log_file(uid)
        self._log.info("place_ended", uid=uid, why=why, **({"output": str(output)} if output.exists() else {}))
        self._post(PlaceEnded(self._clock.monotonic_s(), uid, why))

    def _how(self, held: _Child, code: int | None) -> str:
        if code is None:
            return "its process has ended"
        if code < 0:
            return f"its process was ended by {children.signal_name(-code)}"
        last_lines = self._last_lines(held.uid) if code and held.uid not in self._ordered_to_end else ""
        return f"its process exited with {code}" + (f": {last_lines}" if last_lines else "")

    def _last_lines(self, uid: str) -> str:
        path = self._log_file(uid)
        if not path.exists():
            return ""
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - LAST_LINES_BYTES))
            lines = log.read(LAST_LINES_BYTES).decode(errors="replace").strip().splitlines()
        return lines[-1].strip()[:200] if lines else ""

    def _log_file(self, uid: str) -> Path:
        return Path(self._settings.run_dir) / f"{uid}.log"

    def _drop_old_logs(self) -> None:
        """Removes all but the newest outputs of workers that failed."""
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(self.logs_left(), key=lambda path: path.stat().st_mtime)[:-LOGS_AT_MOST]:
                path.unlink()


def _for_agent(env: dict[str, str]) -> dict[str, str]:
    """Removes the interpreter's variables: they are for trainers, which get them with the assignment."""
    return {name: value for name, value in env.items() if not name.startswith("PYTHON")}
