"""Worker-agents and a master for real trainers of the SDK, in one process: starts them, halts, repairs, hands over.

Messages, repairs and assignments are those of production. When to halt is decided as simply as can be: everything that
breaks is answered by a halt, and a round closes when every known trainer has parked or is gone.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import TCPStore

from agents.worker.commands import Enter
from agents.worker.translation import order_of, status_of
from controlplane.job.live.repair import repair
from messages.ids import ClusterName, Generation, JobName, Rank
from messages.jobs import Launch
from messages.worlds import Assignment, Entry, HotWorld, Member, StoreAddress
from tests.forks import FORKS
from tests.sdk.processes import TrainerProcess
from tests.sdk.trainee import Recipe, train
from tradewind.protocol import trainer as protocol
from tradewind.protocol.trainer import Halt, Order, Status
from tradewind.protocol.variables import TRAINER_SOCKET

HOST = "127.0.0.1"
BOUND_S = 60.0
LOOK_S = 0.02


class Coordinator:
    def __init__(self, folder: Path, recipe: Recipe, env: dict[str, str] | None = None, park_s: float = 10.0) -> None:
        self._park_s = park_s
        self._paused = False
        self._folder = folder
        self._recipe = recipe
        self._env = env or {}
        self._socket = str(folder / "t.sock")
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Condition()
        self._births = 0
        self.trainers: list[TrainerProcess] = []
        self.members: list[TrainerProcess] = []
        self.prepared: list[TrainerProcess] | None = None
        self.newcomers: list[TrainerProcess] = []
        """The next repair takes them in."""
        self.generation = 0
        self.top = 0
        self.worlds: list[tuple[str, int]] = []
        self._misplaced: TrainerProcess | None = None
        self._repairing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Coordinator":
        self._server = await asyncio.start_unix_server(self._serve, self._socket, limit=1 << 24)
        return self

    async def __aexit__(self, *_: object) -> None:
        for trainer in self.trainers:
            if trainer.process.is_alive():
                trainer.kill()
        for trainer in self.trainers:
            trainer.process.join(10)
        if self._server is not None:
            self._server.close()
        for task in [*self._tasks, *([self._repairing] if self._repairing else [])]:
            task.cancel()

    # Commands of a test.

    def hold_before(self, step: int | None) -> None:
        """No rank computes this step before the test says so; None lets them go on."""
        self._write("limit", step)

    def crawl_from(self, step: int | None) -> None:
        """From this step on, each takes its time, until the test says that it need not."""
        self._write("crawl", step)

    def _write(self, name: str, step: int | None) -> None:
        if step is None:
            (self._folder / name).unlink(missing_ok=True)
            return
        aside = self._folder / f"{name}.new"
        aside.write_text(str(step))
        aside.rename(self._folder / name)

    async def start(self, count: int, envs: list[dict[str, str]] | None = None) -> None:
        self.top = self.generation = 1
        self.members = [self.spawn(env) for env in envs or [{}] * count]
        for trainer in self.members:
            await self.until(trainer.is_attached, "a trainer attaches")
        self._assign(self.members, None)
        await self.until(lambda: all(t.is_active() for t in self.members if t.alive), "the first world")

    def spawn(self, env: dict[str, str] | None = None) -> TrainerProcess:
        rank = self._births
        self._births += 1
        variables = {
            TRAINER_SOCKET: self._socket,
            "TRADEWIND_GENERATION": str(max(1, self.top)),
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            **self._env,
            **(env or {}),
        }
        process = FORKS.Process(target=train, args=(self._recipe, variables), daemon=True)
        process.start()
        trainer = TrainerProcess(process, rank)
        self.trainers.append(trainer)
        self._own(self._watch(trainer))
        return trainer

    def begin_change(
        self, leave: list[TrainerProcess] | None = None, join: list[TrainerProcess] | None = None
    ) -> "asyncio.Task[int]":
        return asyncio.create_task(self.change(leave=leave, join=join))

    async def change(self, leave: list[TrainerProcess] | None = None, join: list[TrainerProcess] | None = None) -> int:
        """A planned change; returns its generation when it is done, or when something broke it."""
        leaving = leave or []
        before = list(self.members)
        self.top += 1
        generation = self.top
        self.prepared = [t for t in before if t not in leaving and t.alive] + (join or [])
        await self._notify()
        planned = self.prepared
        previous = tuple(before.index(trainer) if trainer in before else -1 for trainer in planned)
        self._assign(planned, HotWorld(Entry.PLANNED, previous), leaving)
        await self.until(
            lambda: self.top > generation or all(t.generation == generation for t in planned),
            "all have gone over",
        )
        if self.top == generation:
            self.members, self.prepared, self.generation = planned, None, generation
            self.worlds.append(("planned", len(planned)))
        return generation

    async def plan(self, leave: list[TrainerProcess]) -> None:
        """A planned change that is planned again if something breaks it."""
        while any(trainer in self.members for trainer in leave):
            await self.settled()
            await self.change(leave=[trainer for trainer in leave if trainer in self.members])

    async def join_all(self, trainers: list[TrainerProcess]) -> None:
        """All in one change, if nothing breaks it; until each of them takes a share."""
        while not all(t.is_active() or not t.alive for t in trainers):
            await self.settled()
            out = [t for t in trainers if t not in self.members and t.alive]
            generation = await self.change(join=out) if out else self.top
            await self._outcome_of_join(trainers, generation)

    async def warm(self, env: dict[str, str] | None = None) -> TrainerProcess:
        """One that waits to be taken in."""
        trainer = self.spawn(env)
        await self.until(lambda: trainer.status is not None, "a joining trainer attaches")
        return trainer

    async def _outcome_of_join(self, trainers: list[TrainerProcess], top: int) -> None:
        await self.until(lambda: self.top > top or all(t.is_active() or not t.alive for t in trainers), "a join")

    async def settled(self) -> None:
        """No repair is under way, and everybody is in the world that came of it: then the next may be prepared."""
        while not self._is_settled():
            if self._repairing is not None and not self._repairing.done():
                await asyncio.shield(self._repairing)
            else:
                await self.until(lambda: self._is_repairing() or self._is_settled(), "all are in the repaired world")

    def _is_repairing(self) -> bool:
        return self._repairing is not None and not self._repairing.done()

    def _is_settled(self) -> bool:
        there = all(not t.alive or t.generation >= self.generation for t in self.members)
        return there and not self._is_repairing()

    async def step(self, number: int) -> None:
        """Until some rank reports it."""
        await self.until(lambda: any(r.step >= number for t in self.trainers for r in t.reports), f"step {number}")

    async def held(self) -> None:
        """Until all who train wait before the step that is held back."""
        await asyncio.to_thread(self._wait_until_held)

    def _wait_until_held(self) -> None:
        limit = (self._folder / "limit").read_text()
        for _ in range(int(BOUND_S / LOOK_S)):
            if all(self._waits_before(trainer, limit) for trainer in self.members):
                return
            time.sleep(LOOK_S)
        raise AssertionError(f"not all ranks came to step {limit} within {BOUND_S:g} s")

    def _waits_before(self, trainer: TrainerProcess, step: str) -> bool:
        waiting = self._folder / f"waiting-{trainer.pid}"
        return not trainer.alive or (waiting.exists() and waiting.read_text() == step)

    async def all_prepared(self) -> None:
        """Until whoever has part in the change that is being made could go over, or until something breaks it."""
        await self.until(lambda: self.prepared is not None, "a change")
        await asyncio.to_thread(self._wait_until_prepared, self.top, {*self.members, *(self.prepared or ())})

    def _wait_until_prepared(self, generation: int, involved: set[TrainerProcess]) -> None:
        for _ in range(int(BOUND_S / LOOK_S)):
            there = [(self._folder / f"prepared-{trainer.pid}-{generation}").exists() for trainer in involved]
            if all(there) or self.top > generation:
                return
            time.sleep(LOOK_S)
        raise AssertionError(f"not all ranks were ready for generation {generation} within {BOUND_S:g} s")

    def misplace(self, trainer: TrainerProcess) -> None:
        """In the next world, and only there, it is told to be where it cannot be: its builder fails."""
        self._misplaced = trainer

    async def wake_all(self, after_s: float) -> None:
        """For ever: whoever has stopped goes on after so long."""
        while True:
            await asyncio.sleep(LOOK_S)
            stopped = [trainer for trainer in self.trainers if trainer.alive and trainer.has_stopped()]
            if stopped:
                await asyncio.sleep(after_s)
            for trainer in stopped:
                trainer.wake()

    async def pause(self) -> None:
        """All park, and then all are told to end."""
        self._paused = True
        self.top += 1
        for trainer in self.members:
            self._send(trainer, Halt(self.top))
        assert await self._all_park(self.top, self.members)
        for trainer in self.members:
            os.kill(trainer.pid, signal.SIGTERM)
        await self.finished()

    async def finished(self) -> None:
        await self.until(lambda: not any(t.alive for t in self.members), "the end")

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        async def wait() -> None:
            async with self._changed:
                await self._changed.wait_for(holds)

        try:
            async with asyncio.timeout(BOUND_S):
                await wait()
        except TimeoutError:
            told = [(t.birth, t.alive, t.status) for t in self.trainers]
            raise AssertionError(f"waited {BOUND_S:g} s for: {what}; top {self.top}, {told}") from None

    # What trainers say.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        trainer: TrainerProcess | None = None
        async for line in _lines(reader):
            message = protocol.decode_message(line)
            match message:
                case protocol.Attach():
                    trainer = next(t for t in self.trainers if t.birth == message.rank)
                    trainer.writer = writer
                case Status():
                    assert trainer is not None
                    trainer.status = message
                    self._react()
                case protocol.Progress():
                    assert trainer is not None
                    trainer.reports += message.reports
                    trainer.measured.append(message.measured)
                case protocol.Checkpoint():
                    pass
            await self._notify()
        if trainer is not None:
            trainer.writer = None
            self._react()
        writer.close()

    async def _watch(self, trainer: TrainerProcess) -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(trainer.process.sentinel, _set_once, ended)
        try:
            await ended
        finally:
            loop.remove_reader(trainer.process.sentinel)
        trainer.process.join()
        trainer.alive = False
        self._react()
        await self._notify()

    def _react(self) -> None:
        involved = {*self.members, *(self.prepared or ())}
        lost = [t for t in involved if not t.alive and not t.has_finished() and t.process.exitcode != 0]
        broken = [t for t in involved if t.alive and t.status and t.status.broken >= self.generation > 0]
        if (lost or broken or self._waits_in_vain(involved)) and not self._paused and not self._is_repairing():
            self._repairing = asyncio.create_task(self._repair())

    def _waits_in_vain(self, involved: set[TrainerProcess]) -> bool:
        """Some rank has waited long, and all do, or one that does not is stopped."""
        there = [(t, t.status) for t in involved if t.alive and t.status and t.generation == self.generation]
        missing = [trainer for trainer, status in there if status.waiting is None]
        is_overdue = any(status.overdue for _, status in there)
        return is_overdue and (not missing or any(trainer.has_stopped() for trainer in missing))

    async def _repair(self) -> None:
        while True:
            self.top += 1
            generation = self.top
            involved = list(dict.fromkeys([*self.members, *(self.prepared or [])]))
            for trainer in involved:
                self._send(trainer, Halt(generation))
            if not await self._all_park(generation, involved):
                for trainer in involved:
                    if trainer.alive and not trainer.is_parked(generation):
                        trainer.kill()
                continue
            self._decide(generation, involved)
            return

    async def _all_park(self, generation: int, involved: list[TrainerProcess]) -> bool:
        try:
            async with asyncio.timeout(self._park_s), self._changed:
                await self._changed.wait_for(lambda: all(not t.alive or t.is_parked(generation) for t in involved))
        except TimeoutError:
            return False
        return True

    def _decide(self, generation: int, involved: list[TrainerProcess]) -> None:
        with_state = [t for t in involved if t.alive and t.is_active() and not t.has_finished()]
        self.members, self.prepared, self.generation = with_state, None, generation
        if not with_state:
            return
        joining, self.newcomers = self.newcomers, []
        self.members = [*with_state, *joining]
        statuses = {t.worker: [status_of(t.status, None)] for t in with_state if t.status is not None}
        self._assign(self.members, repair(_places(self.members), statuses))

    def _assign(
        self, trainers: list[TrainerProcess], hot: HotWorld | None, leaving: Sequence[TrainerProcess] = ()
    ) -> None:
        """The world of the newest generation. A planned one counts when all have switched to it."""
        if hot is None or hot.entry is Entry.REPAIR:
            self.worlds.append(("start" if hot is None else "repair", len(trainers)))
        world = Assignment(
            job=JobName("test"),
            generation=Generation(self.top),
            world_size=len(trainers),
            members=_places(trainers),
            store=StoreAddress(HOST, self._store.port),
            launch=Launch(script="train.py"),
            stop_grace_s=1.0,
            why="",
            hot=hot,
        )
        for rank, trainer in enumerate(trainers):
            address = HOST
            if trainer is self._misplaced:
                address, self._misplaced = "192.0.2.1", None  # of a network that is for documents only
            self._send(trainer, order_of(Enter(world, Rank(rank)), address))
        for trainer in leaving:
            self._send(trainer, order_of(Enter(world, Rank(0), leaves=True), HOST))

    def _send(self, trainer: TrainerProcess, order: Order) -> None:
        if trainer.writer is not None and not trainer.writer.is_closing():
            trainer.writer.write(protocol.encode_order(order))

    def _own(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _places(trainers: Sequence[TrainerProcess]) -> tuple[Member, ...]:
    """Each trainer is a worker of its own."""
    return tuple(
        Member(trainer.worker, ClusterName("test"), "", "", HOST, group_rank=rank, first_rank=Rank(rank), ranks=1)
        for rank, trainer in enumerate(trainers)
    )


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    with contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            yield line


def _set_once(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("result-*.json"))]
