"""The course of the demonstration: a job trains, one machine gets a notice, another is lost. Facts are recorded."""

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable

from messages.api import EventLine, JobView, LogLine, ProgressLine, WorkerView
from messages.ids import Generation, Rank
from messages.jobs import JobSpec
from runtime import children
from runtime.errors import UserError
from tradewind.client.api import Api
from tradewind.client.errors import MasterAway
from tradewind.client.following import Seen, follow, source_of_event, source_of_line
from tradewind.client.watch import has_ended
from tradewind.demo.facts import Facts, Kill, Promise, formed_from, noticed_in
from tradewind.local import processes

LOOK_EVERY_S = 0.25
DRAIN_S = 5.0
NOTICED_AT_SHARE = 1 / 8
"""Share of the steps after which the first machine gets a notice."""
KILLED_RANK = Rank(1)
"""A rank in the middle, so that later ranks change."""
SETTLED_STEPS = 5
"""Steps that all ranks of a world must complete before the next fault."""
MAX_LINES = 30
CERTIFICATE = "certificate: "
"""Begins the line with the script's certificate."""


class Story:
    def __init__(self, api: Api, spec: JobSpec, promise: Promise, on_event: Callable[[EventLine], None]) -> None:
        self.promise = promise
        self.view: JobView | None = None
        self.events: list[EventLine] = []
        self.progress: list[ProgressLine] = []
        self.last_lines: deque[str] = deque(maxlen=MAX_LINES)
        self.began = time.monotonic()
        self._api = api
        self._spec = spec
        self._on_event = on_event
        self._certificate = ""
        self._noticed_in: Generation | None = None
        """The generation in which a machine got its notice."""
        self._kills: list[Kill] = []
        self._killed_pids: dict[str, list[int]] = {}

    @property
    def step(self) -> int:
        """The newest completed step; −1 before the first."""
        newest = max((message.generation for message in self.progress), default=None)
        return max(
            (rank.last_step for message in self.progress if message.generation == newest for rank in message.ranks),
            default=-1,
        )

    async def play(self) -> None:
        """Submits the job and returns when it has ended and its last reports have arrived."""
        self.view = await self._api.submit(self._spec)
        async with asyncio.TaskGroup() as tasks:
            reported = [
                tasks.create_task(self._hear_progress(), name="demo-progress"),
                tasks.create_task(self._hear_lines(), name="demo-lines"),
                tasks.create_task(self._hear_events(), name="demo-events"),
            ]
            await self._look_until_ended()
            _, late = await asyncio.wait(reported, timeout=DRAIN_S)
            for task in late:
                task.cancel()
        await self._look_afterwards()

    def facts(self, left_behind: tuple[str, ...]) -> Facts:
        return Facts(
            promise=self.promise,
            phase=self.view.phase if self.view is not None else "",
            why=self.view.why if self.view is not None else "",
            progress=tuple(self.progress),
            formed=formed_from(self.events),
            certificate=self._certificate,
            noticed=noticed_in(self.events),
            kills=tuple(self._judged(kill) for kill in self._kills),
            left_behind=left_behind,
            total_s=round(time.monotonic() - self.began, 1),
        )

    async def _hear_progress(self) -> None:
        seen: Seen[ProgressLine] = Seen(lambda message: message.worker)
        async for message in follow(lambda: self._api.progress(self._spec.name), seen, self._is_over):
            self.progress.append(message)

    async def _hear_events(self) -> None:
        seen: Seen[EventLine] = Seen(source_of_event)
        async for event in follow(lambda: self._api.events(self._spec.name, follow=True), seen, self._is_over):
            self._pass_event(event)

    async def _hear_lines(self) -> None:
        seen: Seen[LogLine] = Seen(source_of_line)
        async for line in follow(lambda: self._api.logs(self._spec.name, follow=True), seen, self._is_over):
            self.last_lines.append(f"[{line.rank}] {line.line}")
            if line.line.startswith(CERTIFICATE):
                self._certificate = line.line.removeprefix(CERTIFICATE).strip()

    async def _is_over(self) -> bool:
        return has_ended(await self._api.job(self._spec.name))

    async def _look_until_ended(self) -> None:
        while self.view is None or not has_ended(self.view):
            with contextlib.suppress(MasterAway):
                self.view = await self._api.job(self._spec.name)
                await self._act(self.view)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _act(self, view: JobView) -> None:
        """Causes the next fault, if it is due."""
        if not self._is_settled(view):
            return
        if self._noticed_in is None:
            if self.step >= self.promise.steps * NOTICED_AT_SHARE:
                self._give_notice(view)
        elif not self._kills and view.generation > self._noticed_in:
            self._kill(view)

    async def _look_afterwards(self) -> None:
        """Records what the job left; overridden for a cloud."""

    def _is_full(self, view: JobView) -> bool:
        return view.phase == "running" and view.world_size == self.promise.workers

    def _is_settled(self, view: JobView) -> bool:
        """Whether the world is full and each of its ranks has completed some of its steps."""
        steps: dict[Rank, int] = {}
        for message in self.progress:
            if message.generation == view.generation:
                for rank in message.ranks:
                    steps[rank.rank] = steps.get(rank.rank, 0) + rank.last_step - rank.first_step + 1
        return self._is_full(view) and all(steps.get(Rank(rank), 0) >= SETTLED_STEPS for rank in range(view.world_size))

    def _holder(self, view: JobView, rank: Rank) -> WorkerView | None:
        holder = next((worker for worker in view.workers if rank in worker.ranks and worker.pid), None)
        if holder is not None and holder.pid not in children.descendants(os.getpid()):
            raise UserError(
                f"Worker {holder.worker} (process {holder.pid}) does not belong to this command, so it is not killed.",
                "end the other cluster-controller on this bus, or unset TRADEWIND_NATS_URL",
            )
        return holder

    def _give_notice(self, view: JobView) -> None:
        rank = Rank(view.world_size - 1)
        leaving_worker = self._holder(view, rank)
        if leaving_worker is None:
            return
        children.send([leaving_worker.pid], signal.SIGTERM)
        self._noticed_in = view.generation
        text = f"worker {leaving_worker.worker} (rank {rank}) gets a notice of preemption"
        self._pass_event(EventLine(time.time(), self._spec.name, "demo_noticed", text, "SIGTERM to the worker-agent"))

    def _kill(self, view: JobView) -> None:
        victim = self._holder(view, KILLED_RANK)
        if victim is None:
            return
        pids = processes.kill_tree(victim.pid)
        at = time.time()
        self._killed_pids[victim.worker] = pids
        self._kills.append(Kill(victim.worker, KILLED_RANK, view.generation, self.step, at))
        text = f"killed worker {victim.worker} (rank {KILLED_RANK}), like a lost machine"
        self._pass_event(EventLine(at, self._spec.name, "demo_killed", text, f"SIGKILL to its {len(pids)} processes"))

    def _judged(self, kill: Kill) -> Kill:
        survived = tuple(pid for pid in self._killed_pids[kill.worker] if not children.is_dead(pid))
        return Kill(kill.worker, kill.rank, kill.generation, kill.step, kill.at, survived)

    def _pass_event(self, event: EventLine) -> None:
        self.events.append(event)
        self._on_event(event)
