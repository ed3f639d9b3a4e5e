"""One job with real trainers, and the production cores of job, cluster-controller and worker-agents in one process.

The cores decide which workers form the world, when it halts and which ranks have the state. This module replaces the
shells of job and cluster-controller (messages, the store, machines), and lets a test provide machines, give notices and
inject faults.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch._C._distributed_c10d import TCPStore

from agents.cluster import decide as cluster_core
from agents.cluster import effects as cluster_effects
from agents.cluster import events as cluster_events
from agents.cluster.effects import ClusterEffect
from agents.cluster.events import ClusterEvent
from agents.cluster.places import HURRY_S
from agents.cluster.reconcile import why_of
from agents.cluster.state import ClusterState, new_cluster
from agents.worker.events import NoticeCame
from agents.worker.state import WorkerIdentity
from controlplane.job import decide as job_core
from controlplane.job import effects, events
from controlplane.job.effects import JobEffect
from controlplane.job.events import JobEvent
from controlplane.job.state import Job, new_job
from controlplane.jobs.cluster_views import Changes, ClusterView, JobFeed
from messages.clusters import KeepWorkers, RemoveWorkers
from messages.ids import ClusterName, JobName, WorkerId
from messages.jobs import Failures, JobSpec, Launch, Timeouts, Workers
from messages.records import Record
from messages.worlds import Assignment, JobCommand, StoreAddress
from runtime.decision import Decision
from runtime.role import RoleLoop
from tests.conftest import eventually
from tests.sdk.machines import CLOCK, EPOCH, Machine, Script, Wires
from tests.sdk.processes import TrainerProcess
from tests.sdk.trainee import Recipe, train

CLUSTER = ClusterName("test")
HOST = "127.0.0.1"
NOTICE_S = 600.0
BOUND_S = 60.0
"""Most seconds that a test waits for one condition."""
LOOK_S = 0.02
"""Seconds between two checks for stopped trainers."""


class LiveJob:
    def __init__(
        self, folder: Path, recipe: Recipe, train: Callable[..., None] = train, *, least: int = 1, park_s: float = 10.0
    ) -> None:
        self.machines: list[Machine] = []
        self.worlds: list[tuple[str, int]] = []
        """All worlds so far: how each was entered (`start` without live trainers), and its number of ranks."""
        self.lost: set[type[JobCommand]] = set()
        """Types of messages that do not reach the workers."""
        self.woken: list[TrainerProcess] = []
        """The trainers that `wake_all` woke, once for each time."""
        self._folder = folder
        self._script = Script(train, recipe)
        self._free_envs: list[dict[str, str]] = []
        """Environments for the trainers of free machines, one for each machine."""
        self._waiting_places: list[str] = []
        """Places without a machine."""
        self._newest_world = 0
        self._store: TCPStore | None = None
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None
        now_s = CLOCK.monotonic_s()
        spec = JobSpec(
            name="test",
            launch=Launch(script="train.py"),
            workers=Workers(max=16, min=least),
            failures=Failures(backoff_s=BOUND_S),
            timeouts=Timeouts(park_s=park_s),
        )
        job = new_job(spec, epoch=EPOCH, at_s=now_s, submitted_at=0.0)
        self._job: RoleLoop[Job, JobEvent, JobEffect] = RoleLoop(
            "job", job, job_core.decide, self, events.Ticked, CLOCK, [self._on_decision]
        )
        cluster = new_cluster(CLUSTER, "1", "", now_s, None)
        self._view, self._feed = ClusterView(CLUSTER), JobFeed(job.name)
        self._cluster: RoleLoop[ClusterState, ClusterEvent, ClusterEffect] = RoleLoop(
            "cluster", cluster, cluster_core.decide, self, cluster_events.Ticked, CLOCK
        )

    async def __aenter__(self) -> "LiveJob":
        self._own(self._job.run())
        self._own(self._cluster.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        for machine in self.machines:
            machine.lose("the test is over")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for trainer in self.trainers:
            trainer.process.join(10)

    # State of the job.

    @property
    def record(self) -> Record:
        return self._job.state.record

    @property
    def trainers(self) -> list[TrainerProcess]:
        """The newest trainer of each machine."""
        return [machine.trainer for machine in self.machines if machine.trainer is not None]

    @property
    def members(self) -> list[TrainerProcess]:
        """The trainers of the current world, by rank."""
        return self._trainers_of(self.record.assignment)

    def _trainers_of(self, world: Assignment | None) -> list[TrainerProcess]:
        by_worker = {trainer.worker: trainer for trainer in self.trainers}
        members = world.members if world is not None else ()
        return [by_worker[member.worker] for member in members if member.worker in by_worker]

    def is_whole(self, size: int) -> bool:
        """True if the current world has `size` ranks and all of them are active."""
        return [trainer.alive and trainer.is_active() for trainer in self.members] == [True] * size

    # Waiting. Each method fails the test after `BOUND_S`.

    async def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits until `holds()`. Raises the error of a failed task."""
        try:
            async with asyncio.timeout(BOUND_S):
                while not holds() and self._failed is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            reported = [(t.worker, t.alive, t.status and replace(t.status, terms="")) for t in self.trainers]
            machines = [(machine.worker, machine.alive, machine.status) for machine in self.machines]
            cluster_why = why_of(self._cluster.state, CLOCK.monotonic_s())
            raise AssertionError(
                f"waited {BOUND_S:g} s for: {what}; the job: {self._job.state.why}; the cluster: {cluster_why};"
                f" machines: {machines}; places without one: {self._waiting_places}; {reported}"
            ) from None
        if self._failed is not None:
            raise self._failed

    async def wait_active(self, *trainers: TrainerProcess) -> None:
        await self.wait_until(lambda: all(trainer.is_active() for trainer in trainers), "active trainers")

    async def wait_for_step(self, number: int) -> None:
        """Waits until a rank reports this step or a later one."""
        await self.wait_until(lambda: any(r.step >= number for t in self.trainers for r in t.reports), f"step {number}")

    async def wait_finished(self) -> None:
        await self.wait_until(lambda: self.record.phase.ended and not any(t.alive for t in self.trainers), "the end")

    async def wait_held(self) -> None:
        """Waits until all members wait before the step given to `hold_before`, or have ended."""
        limit = (self._folder / "limit").read_text()
        await self._wait_for_files(lambda: all(self._is_waiting_before(trainer, limit) for trainer in self.members))

    async def wait_all_prepared(self) -> None:
        """Waits until all ranks of the next world tried to build it and leaving ranks know it, or until it changes."""
        await self.wait_until(lambda: self.record.prepared is not None, "a next world")
        prepared = self.record.prepared
        assert prepared is not None
        involved = {*self.members, *self._trainers_of(prepared)}
        files = [self._folder / f"prepared-{trainer.pid}-{prepared.generation}" for trainer in involved]
        await self._wait_for_files(lambda: self.record.prepared != prepared or all(file.exists() for file in files))

    def _is_waiting_before(self, trainer: TrainerProcess, step: str) -> bool:
        waiting = self._folder / f"waiting-{trainer.pid}"
        return not trainer.alive or (waiting.exists() and waiting.read_text() == step)

    async def _wait_for_files(self, holds: Callable[[], bool]) -> None:
        """Waits for a condition on files that trainers write."""
        await eventually(holds, BOUND_S, "files that trainers write")

    # Commands of a test.

    async def start(self, count: int, envs: list[dict[str, str]] | None = None) -> None:
        """Starts workers, and waits until the trainer of each is active or has ended."""
        self.scale(count)
        self.provide(*(envs or [{}] * count))
        await self.wait_until(
            lambda: [t.is_active() or not t.alive for t in self.trainers] == [True] * count, "a first world"
        )

    def provide(self, *envs: dict[str, str]) -> None:
        """Provides machines, each with the environment of its trainer. Places without a machine get them first."""
        self._free_envs += envs
        self._use_machines()

    async def enlarge(self, *envs: dict[str, str]) -> list[TrainerProcess]:
        """Provides machines, requests as many more workers, and waits until their trainers have reported."""
        known = len(self.machines)
        self.scale(self.record.wanted + len(envs))
        self.provide(*envs)
        await self.wait_until(
            lambda: sum(t.status is not None for t in self._since(known)) == len(envs), "reports of the new trainers"
        )
        return self._since(known)

    def _since(self, known: int) -> list[TrainerProcess]:
        return [machine.trainer for machine in self.machines[known:] if machine.trainer is not None]

    def scale(self, workers: int) -> None:
        self._job.post(events.ScaleAsked(CLOCK.monotonic_s(), workers))

    def stop(self) -> None:
        self._job.post(events.StopAsked(CLOCK.monotonic_s(), "requested by a person"))

    def notice(self, *trainers: TrainerProcess) -> None:
        """Gives the machines of these trainers a notice of `NOTICE_S`."""
        for trainer in trainers:
            self.machines[trainer.machine].post(NoticeCame(CLOCK.monotonic_s(), NOTICE_S, "test"))

    async def notice_and_wait(self, *trainers: TrainerProcess) -> None:
        """Gives notice, and waits until the current world has no rank on their machines."""
        self.notice(*trainers)
        await self.wait_until(lambda: not set(trainers) & set(self.members), "a world without them")

    def hold_before(self, step: int | None) -> None:
        """Makes ranks wait before they compute this step or a later one; None: no step is held."""
        self._write("limit", step)

    def crawl_from(self, step: int | None) -> None:
        """Makes this step and all later ones slow; None: full speed."""
        self._write("crawl", step)

    def _write(self, name: Literal["limit", "crawl"], step: int | None) -> None:
        if step is None:
            (self._folder / name).unlink(missing_ok=True)
            return
        aside = self._folder / f"{name}.new"
        aside.write_text(str(step))
        aside.rename(self._folder / name)

    async def wake_all(self, after_s: float) -> None:
        """Runs until cancelled: wakes each trainer `after_s` seconds after it finds it stopped by SIGSTOP."""
        while True:
            await asyncio.sleep(LOOK_S)
            stopped = [trainer for trainer in self.trainers if trainer.alive and trainer.has_stopped()]
            if stopped:
                await asyncio.sleep(after_s)
            for trainer in stopped:
                trainer.wake()
            self.woken += stopped

    # The shells of job and cluster-controller.

    def perform(self, effect: JobEffect | ClusterEffect) -> Awaitable[Any] | None:
        now_s = CLOCK.monotonic_s()
        match effect:
            case effects.SaveRecord(record):
                self._job.post(events.RecordSaved(now_s, record))
            case effects.StartStore(generation):
                self._store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
                self._job.post(events.StoreStarted(now_s, generation, StoreAddress(HOST, self._store.port)))
            case effects.Publish(message, to):
                named = {worker for _, worker in to}
                for machine in self.machines:
                    if machine.alive and type(message) not in self.lost and (not to or machine.worker in named):
                        machine.hear(message)
            case effects.TellCluster(_, KeepWorkers() as keep):
                self._cluster.post(cluster_events.KeepAsked(now_s, keep, EPOCH))
            case effects.TellCluster(_, RemoveWorkers() as remove):
                self._cluster.post(cluster_events.RemoveAsked(now_s, remove, EPOCH))
            case cluster_effects.SaveKnown():
                self._cluster.post(cluster_events.KnownSaved(now_s))
            case cluster_effects.SendTopology(heartbeat):
                changes = self._view.take(heartbeat, now_s)
                assert isinstance(changes, Changes), changes
                event = self._feed.event_of(changes, self._job.state.gone, now_s)
                if event is not None:
                    self._job.post(event)
            case cluster_effects.TellNotice(worker, _, remaining_s, source):
                self._job.post(events.WorkerNoticeCame(now_s, worker, remaining_s, source))
            case cluster_effects.StartPlace(uid):
                self._cluster.post(cluster_events.PlaceStarted(now_s, uid, 0))
                self._cluster.post(cluster_events.PlaceSeen(now_s, uid, "", mute=True, waits_for="a machine"))
                self._waiting_places.append(uid)
                self._use_machines()
            case cluster_effects.EndPlace(uid, grace_s, why):
                self._end_place(uid, min(HURRY_S, grace_s), why)
            case _:
                pass
        return None

    def _use_machines(self) -> None:
        while self._free_envs and self._waiting_places:
            uid, env = self._waiting_places.pop(0), self._free_envs.pop(0)
            identity = WorkerIdentity(WorkerId(f"{uid}-0001"), CLUSTER, JobName("test"), address=HOST)
            wires = Wires(self._job.post, self._cluster.post, self._own, self._changed.set)
            self._cluster.post(cluster_events.PlaceSeen(CLOCK.monotonic_s(), uid, ""))
            self.machines.append(Machine(uid, len(self.machines), identity, self._script, env, wires))

    def _end_place(self, uid: str, within_s: float, why: str) -> None:
        if uid in self._waiting_places:
            self._waiting_places.remove(uid)
            self._cluster.post(cluster_events.PlaceEnded(CLOCK.monotonic_s(), uid, why))
        for machine in self.machines:
            if machine.uid == uid:
                self._own(machine.end(within_s, why))

    def _on_decision(self, _: Sequence[JobEvent], decision: Decision[Job, JobEffect]) -> None:
        world = decision.state.record.assignment
        if world is not None and world.generation != self._newest_world:
            self._newest_world = world.generation
            self.worlds.append((world.live.entry.value if world.live is not None else "start", world.world_size))
        self._changed.set()

    def _own(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed = self._failed or task.exception()
        self._changed.set()


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("result-*.json"))]
