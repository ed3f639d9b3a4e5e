"""Performs the effects of a worker-agent's core with host, trainers and bus."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import assert_never

from agents.worker import invariants
from agents.worker.effects import (
    AbortTrainer,
    FlushProgress,
    ForkTrainers,
    Leave,
    LookAtTrainers,
    ReadStoredWorld,
    SendHeartbeat,
    StartHost,
    StopTrainers,
    TellFact,
    TellNotice,
    TellTrainer,
    WorkerEffect,
)
from agents.worker.environment import AN_INVITED, enlarged
from agents.worker.events import TrainersSeen, WorkerEvent
from agents.worker.host_runner import HostRunner
from agents.worker.incoming import Incoming
from agents.worker.outgoing import Outgoing
from agents.worker.state import WorkerIdentity, WorkerState, own_place
from agents.worker.trainer_socket import Trainers
from agents.worker.translation import order_of
from messages.workers import WorkerStatus
from runtime import causes
from runtime.clock import Clock
from runtime.decision import Decision
from runtime.logs import WhyLog, logger
from tradewind.protocol.variables import TERMS

LOG_AFTER_S = 0.005


class WorkerShell:
    def __init__(
        self,
        identity: WorkerIdentity,
        outgoing: Outgoing,
        incoming: Incoming,
        host: HostRunner,
        trainers: Trainers,
        post: Callable[[WorkerEvent], None],
        tasks: asyncio.TaskGroup,
        clock: Clock,
    ) -> None:
        self.left: asyncio.Future[Leave] = asyncio.get_running_loop().create_future()
        self._identity = identity
        self._outgoing = outgoing
        self._incoming = incoming
        self._host = host
        self._trainers = trainers
        self._post = post
        self._tasks = tasks
        self._clock = clock
        self._state: WorkerState | None = None
        self._log = logger(worker=identity.worker)
        self._log_why = WhyLog(self._log, "waits_for")
        self._to_log: list[Callable[[], None]] = []

    def perform(self, effect: WorkerEffect) -> Awaitable[WorkerEvent | None] | None:
        match effect:
            case StartHost():
                with causes.caused_by(None):  # a host outlives the event that requested it
                    self._tasks.create_task(self._host.run(), name="host")
            case ForkTrainers(world, invited=True, terms=terms):
                self._host.fork(*enlarged(world, self._identity), {**AN_INVITED, TERMS: terms})
            case ForkTrainers(assignment):
                self._host.fork(assignment, own_place(self._identity.worker, assignment), {})
            case StopTrainers(generation, grace_s):
                return self._host.stop(generation, grace_s)
            case TellTrainer(generation, rank, command):
                self._trainers.tell((generation, rank), order_of(command, self._identity.address))
            case LookAtTrainers():
                self._post(TrainersSeen(self._clock.monotonic_s(), self._trainers.running()))
            case AbortTrainer(generation, rank, why):
                self._host.abort(generation, rank, why)
            case TellFact(fact):
                self._outgoing.fact(effect)
                self._log_soon(partial(self._log_sent, fact, effect.status))
            case TellNotice(remaining_s, source):
                self._outgoing.notice(remaining_s, source)
            case SendHeartbeat(status):
                self._outgoing.heartbeat(status)
            case FlushProgress():
                self._outgoing.flush_progress()
            case ReadStoredWorld():
                self._incoming.read_again()
            case Leave(code, why):
                self._log_now()
                self._log.info("leaves", code=code, why=why)
                self.left.set_result(effect)
            case _:
                assert_never(effect)
        return None

    def on_decision(self, events: Sequence[WorkerEvent], decision: Decision[WorkerState, WorkerEffect]) -> None:
        before, self._state = self._state or decision.state, decision.state
        for broken in invariants.check(before, decision.state):
            self._log.error("invariant_broken", what=broken, after=str(events[-1]))
        state = decision.state
        self._log_soon(lambda: self._log_why(decision.why, phase=state.phase, generation=state.generation))

    def _log_soon(self, log: Callable[[], None]) -> None:
        """Logs after waiting messages have been sent, because a line on standard error would delay them."""
        if not self._to_log:
            asyncio.get_running_loop().call_later(LOG_AFTER_S, self._log_now)
        self._to_log.append(log)

    def _log_now(self) -> None:
        logs, self._to_log = self._to_log, []
        for log in logs:
            log()

    def _log_sent(self, fact: str, status: WorkerStatus) -> None:
        self._log.info("sent", fact=fact, generation=status.generation, phase=status.phase)
