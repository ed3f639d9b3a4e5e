"""Machines of a test: the core of the worker-agent, its socket for trainers, and one real trainer process.

The core decides. This module replaces the agent's shell and its host: it forks, stops and watches processes.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.cluster import events as cluster_events
from agents.cluster.events import ClusterEvent
from agents.worker import effects, events
from agents.worker.commands import Enter, TrainerCommand
from agents.worker.decide import decide
from agents.worker.effects import ForkTrainers, WorkerEffect
from agents.worker.environment import AN_INVITED, enlarged, rank_environment
from agents.worker.events import WorkerEvent
from agents.worker.listener import Listener
from agents.worker.outbox import LogOutbox
from agents.worker.progress import ProgressBook
from agents.worker.state import WorkerIdentity, WorkerState, new_worker, own_place, status_of
from agents.worker.trainer import Birth
from agents.worker.translation import fact_message, order_of
from controlplane.job import events as job_events
from controlplane.job.events import JobEvent
from controlplane.jobs.ingest import ForJob, fact_of
from messages import subjects, worlds
from messages.ids import Epoch
from messages.workers import TrainerExit, WorkerStatus
from messages.worlds import JobCommand
from runtime.clock import SystemClock
from runtime.role import RoleLoop
from tests.forks import FORKS
from tests.sdk.processes import TrainerProcess
from tests.sdk.trainee import Recipe
from tradewind.protocol.trainer import TrainerMessage
from tradewind.protocol.variables import TERMS, TRAINER_SOCKET

CLOCK = SystemClock()
EPOCH = Epoch(1)
NOWHERE = "192.0.2.1"
"""An address of a network that exists in documents only."""

Heard = Callable[[float, Any, Epoch], WorkerEvent]
HEARD: dict[type[JobCommand], Heard] = {
    worlds.Assignment: events.AssignmentHeard,
    worlds.Halt: events.HaltHeard,
    worlds.Invite: events.InviteHeard,
    worlds.Release: events.ReleaseHeard,
    worlds.Locate: events.LocateHeard,
    worlds.EndStalled: events.EndStalledHeard,
}


@dataclass(frozen=True, slots=True)
class Wires:
    """Callbacks from a machine to the rest of the test."""

    to_job: Callable[[JobEvent], None]
    to_cluster: Callable[[ClusterEvent], None]
    own: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
    changed: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Script:
    """The function and the recipe that each trainer runs."""

    train: Callable[[Recipe, dict[str, str]], None]
    recipe: Recipe


class Machine:
    """One worker-agent and its trainer. When the trainer is killed with SIGKILL, the machine is lost with it."""

    def __init__(
        self, uid: str, number: int, identity: WorkerIdentity, script: Script, env: dict[str, str], wires: Wires
    ) -> None:
        self.uid = uid
        self.number = number
        self.trainer: TrainerProcess | None = None
        self.alive = True
        self._is_misplaced = False
        self.worker = identity.worker
        self._identity = identity
        self._script = script
        self._socket = Path(script.recipe.folder) / f"{uid}.sock"
        self._env = {TRAINER_SOCKET: str(self._socket), **env}
        self._wires = wires
        self._role: RoleLoop[WorkerState, WorkerEvent, WorkerEffect] = RoleLoop(
            identity.worker, new_worker(identity, CLOCK.monotonic_s()), decide, self, events.Ticked, CLOCK
        )
        self._listener = _Listener(self._role.post, identity, self._on_message)
        self._running = wires.own(self._run())

    @property
    def status(self) -> WorkerStatus:
        return status_of(self._role.state, CLOCK.monotonic_s())

    def post(self, event: WorkerEvent) -> None:
        self._role.post(event)

    def hear(self, message: JobCommand) -> None:
        self.post(HEARD[type(message)](CLOCK.monotonic_s(), message, EPOCH))

    def lose(self, why: str) -> None:
        """Ends the machine and its trainer without warning."""
        if self.alive:
            self.alive = False
            if self.trainer is not None:
                self.trainer.kill()
            self._running.cancel()
            self._wires.to_cluster(cluster_events.PlaceEnded(CLOCK.monotonic_s(), self.uid, why))

    async def end(self, within_s: float, why: str) -> None:
        """Acts like SIGTERM to an agent: gives a notice, waits for the trainer's exit, then ends the machine."""
        self.post(events.NoticeCame(CLOCK.monotonic_s(), within_s, "signal"))
        if self.trainer is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.trainer.gone.wait(), within_s)
        self.lose(why)

    def perform(self, effect: WorkerEffect) -> Awaitable[WorkerEvent | None] | None:
        now_s, worker = CLOCK.monotonic_s(), self._identity.worker
        match effect:
            case effects.StartHost():
                self.post(events.HostWarmed(now_s))
            case ForkTrainers():
                self._fork(effect)
            case effects.StopTrainers(generation, grace_s):
                return self._stop(events.TrainersStopped(now_s, generation), grace_s)
            case effects.TellTrainer(generation, rank, command):
                self._listener.trainers.tell((generation, rank), order_of(command, self._address_for(command)))
            case effects.LookAtTrainers():
                self.post(events.TrainersSeen(now_s, self._listener.trainers.running()))
            case effects.TellFact(fact):
                self._tell(effect)
                if fact == "left":
                    self._wires.to_cluster(cluster_events.WorkerSaidLeft(now_s, worker, effect.why))
            case effects.TellNotice(remaining_s, source):
                self._wires.to_job(job_events.WorkerNoticeCame(now_s, worker, remaining_s, source))
            case effects.SendHeartbeat(status):
                self._wires.to_cluster(cluster_events.WorkerHeard(now_s, status))
            case effects.Leave(_, why):
                self.lose(why)
            case effects.AbortTrainer(_, _, why):
                raise AssertionError(f"{worker} counts as stalled: {why}")
            case effects.FlushProgress() | effects.ReadStoredWorld():
                pass
        return None

    def misplace(self) -> None:
        """Gives its trainer a wrong address in the next world only, so that the build fails there."""
        self._is_misplaced = True

    def _address_for(self, command: TrainerCommand) -> str:
        if not self._is_misplaced or not isinstance(command, Enter):
            return self._identity.address
        self._is_misplaced = False
        return NOWHERE

    async def _run(self) -> None:
        async with self._listener.trainers.serving(self._socket, to_others=False):
            await self._role.run()

    def _tell(self, effect: effects.TellFact) -> None:
        subject = subjects.worker_fact(self._identity.cluster, self._identity.worker, effect.fact)
        heard = fact_of(subject, fact_message(effect), CLOCK.monotonic_s())
        assert isinstance(heard, ForJob), heard
        self._wires.to_job(heard.event)

    def _fork(self, fork: ForkTrainers) -> None:
        world, member, more = fork.assignment, own_place(self._identity.worker, fork.assignment), {}
        if fork.invited:
            (world, member), more = enlarged(world, self._identity), {**AN_INVITED, TERMS: fork.terms}
        assert member is not None
        env = {**rank_environment(world, member, 0, self._env, os.devnull), **more}
        process = FORKS.Process(target=self._script.train, args=(self._script.recipe, env), daemon=True)
        process.start()
        self.trainer = TrainerProcess(process, self._identity.worker, self.number)
        self.post(events.TrainerForked(CLOCK.monotonic_s(), world.generation, member.first_rank, self.trainer.pid))
        self._wires.own(self._watch(self.trainer, (world.generation, member.first_rank)))

    async def _watch(self, trainer: TrainerProcess, birth: Birth) -> None:
        await trainer.ended()
        code = trainer.exitcode or 0
        if code == -signal.SIGKILL and not trainer.is_stopped:
            self.lose("its trainer was killed")
        name = signal.Signals(-code).name if code < 0 else None
        exited = TrainerExit(birth[1], code=None if name else code, signal=name)
        self.post(events.TrainerExited(CLOCK.monotonic_s(), birth[0], exited))
        self._wires.changed()

    async def _stop(self, stopped: WorkerEvent, grace_s: float) -> WorkerEvent:
        trainer = self.trainer
        if trainer is not None and trainer.alive:
            trainer.is_stopped = True
            trainer.send(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(trainer.gone.wait(), grace_s)
            trainer.kill()
            await trainer.gone.wait()
        return stopped

    def _on_message(self, message: TrainerMessage | None) -> None:
        if self.trainer is not None:
            self.trainer.hear(message)
        self._wires.changed()


class _Listener(Listener):
    """The agent's listener, which also passes each message to the test."""

    def __init__(
        self,
        post: Callable[[WorkerEvent], None],
        identity: WorkerIdentity,
        on_message: Callable[[TrainerMessage | None], None],
    ) -> None:
        outbox = LogOutbox(identity.job, identity.worker, _publish_nothing)
        super().__init__(post, outbox, ProgressBook(identity.job, identity.worker), None, CLOCK)
        self._on_message = on_message

    def hear_trainer(self, birth: Birth, message: TrainerMessage | None) -> None:
        self._on_message(message)
        super().hear_trainer(birth, message)


async def _publish_nothing(*_: Any) -> None:
    """Drops lines: trainers of these tests write to the test's own output."""
