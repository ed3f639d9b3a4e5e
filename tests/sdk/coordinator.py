"""Plays worker-agents and master for trainers of the SDK, in one process: starts them, halts, repairs, hands over.

It follows the protocol of tradewind/protocol/trainer.py and decides as simply as can be: everything that breaks is
answered by a halt, and a round closes when everybody it knows has parked or is gone.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import TCPStore

from tests.forks import FORKS
from tests.sdk.trainee import Recipe, train
from tradewind.protocol import trainer as protocol

BOUND_S = 60.0
LOOK_S = 0.02


@dataclass(eq=False)
class Trainer:
    process: BaseProcess
    birth: int
    writer: asyncio.StreamWriter | None = None
    status: dict[str, Any] = field(default_factory=dict)
    alive: bool = True
    reports: list[dict[str, Any]] = field(default_factory=list)
    measured: list[dict[str, Any]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def is_attached(self) -> bool:
        return self.writer is not None

    def is_parked(self, generation: int) -> bool:
        return bool(self.status) and int(self.status["parked"]) >= generation

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def has_stopped(self) -> bool:
        return _state_of(self.pid) == "T"

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


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
        self.trainers: list[Trainer] = []
        self.members: list[Trainer] = []
        self.prepared: list[Trainer] | None = None
        self.newcomers: list[Trainer] = []
        """The next repair takes them in."""
        self.generation = 0
        self.top = 0
        self.worlds: list[tuple[str, int]] = []
        self._misplaced: Trainer | None = None
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
        self.worlds.append(("start", count))
        for rank, trainer in enumerate(self.members):
            await self.until(trainer.is_attached, "a trainer attaches")
            self._assign(trainer, rank, self.members, "start")
        await self.until(lambda: all(t.status.get("active") for t in self.members if t.alive), "the first world")

    def spawn(self, env: dict[str, str] | None = None) -> Trainer:
        rank = self._births
        self._births += 1
        variables = {
            protocol.SOCKET: self._socket,
            "TRADEWIND_GENERATION": str(max(1, self.top)),
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            **self._env,
            **(env or {}),
        }
        process = FORKS.Process(target=train, args=(self._recipe, variables), daemon=True)
        process.start()
        trainer = Trainer(process, rank)
        self.trainers.append(trainer)
        self._own(self._watch(trainer))
        return trainer

    def begin_change(
        self, leave: list[Trainer] | None = None, join: list[Trainer] | None = None
    ) -> "asyncio.Task[int]":
        return asyncio.create_task(self.change(leave=leave, join=join))

    async def change(self, leave: list[Trainer] | None = None, join: list[Trainer] | None = None) -> int:
        """A planned change; returns its generation when it is done, or when something broke it."""
        leaving = leave or []
        before = list(self.members)
        self.top += 1
        generation = self.top
        self.prepared = [t for t in before if t not in leaving and t.alive] + (join or [])
        await self._notify()
        for rank, trainer in enumerate(self.prepared):
            self._assign(trainer, rank, self.prepared, "planned", before)
        for trainer in leaving:
            self._assign(trainer, 0, self.prepared, "planned", before, leaves=True)
        planned = self.prepared
        await self.until(
            lambda: self.top > generation or all(t.status.get("generation") == generation for t in planned),
            "all have gone over",
        )
        if self.top == generation:
            self.members, self.prepared, self.generation = planned, None, generation
            self.worlds.append(("planned", len(planned)))
        return generation

    async def plan(self, leave: list[Trainer]) -> None:
        """A planned change that is planned again if something breaks it."""
        while any(trainer in self.members for trainer in leave):
            await self.settled()
            await self.change(leave=[trainer for trainer in leave if trainer in self.members])

    async def join_all(self, trainers: list[Trainer]) -> None:
        """All in one change, if nothing breaks it; until each of them takes a share."""
        while not all(t.status.get("active") or not t.alive for t in trainers):
            await self.settled()
            out = [t for t in trainers if t not in self.members and t.alive]
            generation = await self.change(join=out) if out else self.top
            await self._outcome_of_join(trainers, generation)

    async def warm(self, env: dict[str, str] | None = None) -> Trainer:
        """One that waits to be taken in."""
        trainer = self.spawn(env)
        await self.until(lambda: bool(trainer.status), "a joiner attaches")
        return trainer

    async def _outcome_of_join(self, trainers: list[Trainer], top: int) -> None:
        await self.until(
            lambda: self.top > top or all(bool(t.status.get("active")) or not t.alive for t in trainers), "a join"
        )

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
        there = all(not t.alive or t.status.get("generation", 0) >= self.generation for t in self.members)
        return there and not self._is_repairing()

    async def step(self, number: int) -> None:
        """Until some rank reports it."""
        await self.until(lambda: any(r["step"] >= number for t in self.trainers for r in t.reports), f"step {number}")

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

    def _waits_before(self, trainer: Trainer, step: str) -> bool:
        waiting = self._folder / f"waiting-{trainer.pid}"
        return not trainer.alive or (waiting.exists() and waiting.read_text() == step)

    async def all_prepared(self) -> None:
        """Until whoever has part in the change that is being made could go over, or until something breaks it."""
        await self.until(lambda: self.prepared is not None, "a change")
        await asyncio.to_thread(self._wait_until_prepared, self.top, {*self.members, *(self.prepared or ())})

    def _wait_until_prepared(self, generation: int, involved: set[Trainer]) -> None:
        for _ in range(int(BOUND_S / LOOK_S)):
            there = [(self._folder / f"prepared-{trainer.pid}-{generation}").exists() for trainer in involved]
            if all(there) or self.top > generation:
                return
            time.sleep(LOOK_S)
        raise AssertionError(f"not all ranks were ready for generation {generation} within {BOUND_S:g} s")

    def misplace(self, trainer: Trainer) -> None:
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
            self._send(trainer, {"type": "halt", "generation": self.top})
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
        trainer: Trainer | None = None
        async for line in _lines(reader):
            message = json.loads(line)
            match message["type"]:
                case "attach":
                    trainer = next(t for t in self.trainers if t.birth == message["rank"])
                    trainer.writer = writer
                case "status":
                    assert trainer is not None
                    trainer.status = message
                    self._react()
                case "progress":
                    assert trainer is not None
                    trainer.reports += message["reports"]
                    trainer.measured.append(message["measured"])
            await self._notify()
        if trainer is not None:
            trainer.writer = None
            self._react()
        writer.close()

    async def _watch(self, trainer: Trainer) -> None:
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
        lost = [t for t in involved if not t.alive and not t.status.get("finished") and t.process.exitcode != 0]
        broken = [t for t in involved if t.alive and t.status.get("broken", 0) >= self.generation > 0]
        if (lost or broken or self._waits_in_vain(involved)) and not self._paused and not self._is_repairing():
            self._repairing = asyncio.create_task(self._repair())

    def _waits_in_vain(self, involved: set[Trainer]) -> bool:
        """Some rank has waited long, and all do, or one that does not is stopped."""
        there = [t for t in involved if t.alive and t.status.get("generation") == self.generation]
        missing = [t for t in there if t.status.get("waiting") is None]
        return any(t.status.get("overdue") for t in there) and (not missing or any(t.has_stopped() for t in missing))

    async def _repair(self) -> None:
        while True:
            self.top += 1
            generation = self.top
            involved = list(dict.fromkeys([*self.members, *(self.prepared or [])]))
            for trainer in involved:
                self._send(trainer, {"type": "halt", "generation": generation})
            if not await self._all_park(generation, involved):
                for trainer in involved:
                    if trainer.alive and not trainer.is_parked(generation):
                        trainer.kill()
                continue
            if self._decide(generation, involved):
                return

    async def _all_park(self, generation: int, involved: list[Trainer]) -> bool:
        try:
            async with asyncio.timeout(self._park_s), self._changed:
                await self._changed.wait_for(lambda: all(not t.alive or t.is_parked(generation) for t in involved))
        except TimeoutError:
            return False
        return True

    def _decide(self, generation: int, involved: list[Trainer]) -> bool:
        with_state = [t for t in involved if t.alive and t.status.get("active") and not t.status.get("finished")]
        self.members, self.prepared, self.generation = with_state, None, generation
        if not with_state:
            return True
        newcomers, self.newcomers = self.newcomers, []
        self.members = members = [*with_state, *newcomers]
        resume = max(int(t.status["done"]) for t in with_state)
        held = [t.status["held"] if t.status["done"] == resume else [] for t in with_state]
        done = [int(t.status["done"]) for t in with_state]
        hot = {
            "resume": resume,
            "source": done.index(resume),
            "laggards": [rank for rank, each in enumerate(done) if each == resume - 1],
            "held": [*held, *([] for _ in newcomers)],
        }
        self.worlds.append(("repair", len(members)))
        for rank, trainer in enumerate(members):
            self._assign(trainer, rank, members, "repair", with_state, **hot)
        return True

    def _assign(
        self,
        trainer: Trainer,
        rank: int,
        members: list[Trainer],
        entry: str,
        before: list[Trainer] | None = None,
        **more: Any,
    ) -> None:
        previous = [(before or []).index(t) if t in (before or []) else -1 for t in members]
        address = "127.0.0.1"
        if trainer is self._misplaced:
            address, self._misplaced = "192.0.2.1", None  # of a network that is for documents only
        self._send(
            trainer,
            {
                "type": "assign",
                "generation": self.top,
                "rank": rank,
                "world_size": len(members),
                "entry": entry,
                "address": address,
                "peers": ["127.0.0.1"],
                "store": {"host": "127.0.0.1", "port": self._store.port, "prefix": ""},
                "previous": previous if entry != "start" else [],
                **more,
            },
        )

    def _send(self, trainer: Trainer, message: dict[str, Any]) -> None:
        if trainer.writer is not None and not trainer.writer.is_closing():
            trainer.writer.write(json.dumps(message).encode() + b"\n")

    def _own(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    with contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            yield line


def _state_of(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _set_once(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("result-*.json"))]
