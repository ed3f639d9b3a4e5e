"""Places made of plain processes: one worker-agent each, in a session of its own, so that it outlives the controller.

They are started with `subprocess`, not through the event loop: an event loop that closes kills the children it knows.
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
"""A first SIGTERM is a notice, which the worker may use to hand over; a second one asks it to leave at once."""
LOGS_AT_MOST = 200
LAST_WORDS_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Held:
    uid: str
    pid: int
    birth: str
    child: "subprocess.Popen[bytes] | None"
    """None: an earlier controller started it, so nobody learns its exit code."""
    gpus: Gpus = ()


class LocalPlaces:
    """Posts PlaceStarted, PlaceFailed, AgentEnded and PlaceEnded. Its watchers belong to the task group it is given."""

    def __init__(
        self,
        settings: ClusterSettings,
        post: Callable[[ClusterEvent], None],
        tasks: asyncio.TaskGroup,
        clock: Clock,
        *,
        alone: bool = False,
    ) -> None:
        """`alone`: this process has no children but agents, and those that dead agents left to it."""
        self._alone = alone
        self._settings = settings
        self._post = post
        self._tasks = tasks
        self._clock = clock
        self._held: dict[str, _Held] = {}
        self._gpus = machine.machine_gpus(settings.gpus, os.environ)
        self._ending: set[str] = set()
        """Just now."""
        self._told_to_end: set[str] = set()
        """And not killed since."""
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
        self._hold(_Held(uid, child.pid, machine.birth_of(child.pid) or "", child, own_gpus))
        self._log.info("place_started", uid=uid, job=job, pid=child.pid)

    def adopt(self, places: Iterable[KnownPlace]) -> None:
        """What an earlier controller started: it lives, or it has ended meanwhile."""
        for place in places:
            pid = place.pid or machine.find_agent(place.uid) or 0
            birth = machine.birth_of(pid) if pid else None
            if birth is not None and (birth == place.birth or machine.carries(pid, place.uid)):
                self._log.info("place_adopted", uid=place.uid, job=place.job, pid=pid)
                self._hold(_Held(place.uid, pid, birth, None, machine.process_gpus(pid)))
            else:
                name = f"place/{place.uid}"
                self._watchers[place.uid] = self._tasks.create_task(self._sweep(place.uid), name=name)

    def recognise(self, uid: str, pid: int) -> bool:
        """A worker that is heard of but not in the record: whether it is one that a controller started here."""
        birth = machine.birth_of(pid) if pid > 0 else None
        if uid in self._held or birth is None or not machine.carries(pid, uid):
            return False
        self._hold(_Held(uid, pid, birth, None, machine.process_gpus(pid)))
        return True

    async def end(self, uid: str, grace_s: float) -> None:
        held = self._held.get(uid)
        if held is None:
            self._ended(uid, "nothing was running in it", None)
        elif uid not in self._ending:
            self._ending.add(uid)
            self._told_to_end.add(uid)
            try:
                await self._end(held, grace_s)
            finally:
                self._ending.discard(uid)

    async def kill_all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for held in self._held.values():
                tasks.create_task(self._kill_place(held.uid, held.pid), name=f"kill/{held.uid}")

    def forget_all(self) -> None:
        """Stops watching; the places live on."""
        for watcher in self._watchers.values():
            watcher.cancel()

    def logs_left(self) -> list[Path]:
        """What workers wrote that did not end well; nobody can ask them any more."""
        return [path for path in Path(self._settings.run_dir).glob("w*x*.log") if path.stem not in self._held]

    def _share(self, uid: str, template: WorkerTemplate, departing: frozenset[str]) -> Gpus:
        """What a place has that departs is given to the one that replaces it."""
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

    def _hold(self, held: _Held) -> None:
        self._held[held.uid] = held
        self._watchers[held.uid] = self._tasks.create_task(self._watch(held), name=f"place/{held.uid}")
        self._post(PlaceStarted(self._clock.monotonic_s(), held.uid, held.pid, held.birth))

    async def _watch(self, held: _Held) -> None:
        await children.wait_exit(held.pid)
        code = children.exit_code(held.pid) if held.child is not None else None
        how = self._how(held, code)
        self._held[held.uid] = replace(held, gpus=())
        ended_well = code == 0 or (held.uid in self._told_to_end and code in (None, -signal.SIGTERM))
        self._post(AgentEnded(self._clock.monotonic_s(), held.uid, how))
        # Before it is reaped: until then nobody else can have its number.
        await self._kill_place(held.uid, held.pid)
        if held.child is not None:
            held.child.wait()
        if ended_well:
            self._log_file(held.uid).unlink(missing_ok=True)
        self._held.pop(held.uid)
        self._watchers.pop(held.uid)
        self._ended(held.uid, how, code)

    async def _sweep(self, uid: str) -> None:
        """Its agent is gone, and perhaps not all that it started."""
        await self._kill_place(uid, leader=None)
        self._watchers.pop(uid)
        self._ended(uid, "it ended while no cluster-controller was there", None)

    async def _end(self, held: _Held, grace_s: float) -> None:
        hurry_s = min(HURRY_S, grace_s / 2)
        for wait_s in (hurry_s, grace_s - hurry_s):
            machine.send(held.pid, held.birth, signal.SIGTERM)
            if await children.wait_exit(held.pid, wait_s):
                return
        await self._kill_place(held.uid, held.pid)

    async def _kill_place(self, uid: str, leader: int | None) -> None:
        """The agent and everything that it left behind, until nothing is. Without a leader only by the mark."""
        self._told_to_end.discard(uid)
        left = await children.kill_until_none_async(lambda: self._left(uid, leader))
        if left:
            self._log.warning("place_not_empty", uid=uid, processes=left)
        await asyncio.to_thread(machine.end_cgroups, uid)

    async def _left(self, uid: str, leader: int | None) -> list[int]:
        return await asyncio.to_thread(machine.of_place, uid, leader) or await self._orphans()

    async def _orphans(self) -> list[int]:
        """Agents adopt what their own processes leave. So a child of this process that is no agent is a dead one's."""
        if not self._alone:
            return []
        born = await asyncio.to_thread(children.children_of, os.getpid())
        # On the event loop, which starts agents and reaps: a number seen in the thread may be another process's by now.
        agents = {held.pid for held in self._held.values()}
        orphans = [pid for pid in born if pid not in agents]
        for pid in orphans:
            children.reap(pid)
        return [pid for pid in orphans if children.parent_of(pid) == os.getpid()]

    def _ended(self, uid: str, why: str, code: int | None) -> None:
        output = self._log_file(uid)
        self._log.info("place_ended", uid=uid, why=why, **({"output": str(output)} if output.exists() else {}))
        self._post(PlaceEnded(self._clock.monotonic_s(), uid, why, code))

    def _how(self, held: _Held, code: int | None) -> str:
        if code is None:
            return "its process has ended"
        if code < 0:
            return f"its process was ended by {_name_of(-code)}"
        last_words = self._last_words(held.uid) if code and held.uid not in self._told_to_end else ""
        return f"its process exited with {code}" + (f": {last_words}" if last_words else "")

    def _last_words(self, uid: str) -> str:
        path = self._log_file(uid)
        if not path.exists():
            return ""
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - LAST_WORDS_BYTES))
            lines = log.read(LAST_WORDS_BYTES).decode(errors="replace").strip().splitlines()
        return lines[-1].strip()[:200] if lines else ""

    def _log_file(self, uid: str) -> Path:
        return Path(self._settings.run_dir) / f"{uid}.log"

    def _drop_old_logs(self) -> None:
        """Of places that did not end well, all but the newest."""
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(self.logs_left(), key=lambda path: path.stat().st_mtime)[:-LOGS_AT_MOST]:
                path.unlink()


def _for_agent(env: dict[str, str]) -> dict[str, str]:
    """What changes an interpreter is for the trainers, who get it with their assignment; the agent runs our modules."""
    return {name: value for name, value in env.items() if not name.startswith("PYTHON")}


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
