"""The host's loop: one thread, one selector, no call that can hang.

It passes output from the trainers' pipes to the agent. While the agent is slow, the host stops reading the pipes: the
trainers wait, and the host's memory does not grow.
"""

import contextlib
import json
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, assert_never

from tradewind import progress
from tradewind.host.connection import AgentConnection
from tradewind.host.diagnosis import error_message, hint_of, peer_lost
from tradewind.host.process import Pipe, TrainerProcess, code_and_signal, fork_trainer
from tradewind.host.trainer import Newborn
from tradewind.protocol import host as protocol
from tradewind.protocol.host import Abort, Exit, Fork, Stop
from tradewind.protocol.lines import Unreadable
from tradewind.protocol.steps import StepReport, read_report

_BACKLOG_HIGH_BYTES: Final = 1024 * 1024
_BACKLOG_LOW_BYTES: Final = 256 * 1024
_BACKLOG_DEAF_BYTES: Final = 16 * 1024 * 1024
_UNKILLABLE_S: Final = 5.0
ALREADY_RUNNING: Final = "this trainer is already running"
ENDING: Final = "the host is ending"


class _CannotObey(Exception):
    """A valid command that the host cannot obey now, with the reason."""


class Host:
    def __init__(self, agent: AgentConnection) -> None:
        self._agent = agent
        self._selector = selectors.DefaultSelector()
        self._selector.register(agent, selectors.EVENT_READ, self._listen)
        self._heard: deque[bytes] = deque()
        self._trainers: dict[tuple[int, int], TrainerProcess] = {}
        self._stops: list[int] = []
        self._reading = True
        self._leave_by: float | None = None

    def run(self) -> Newborn | None:
        """Serves the agent until it sends `exit` or disconnects. Returns the newborn in each forked process."""
        while True:
            if self._agent.closed:
                self._leave()
            if self._done():
                break
            self._keep_the_agents_pace()
            for key, _ in self._selector.select(self._idle_s()):
                react: Callable[[], None] = key.data
                react()
            while self._heard:
                newborn = self._obey(self._heard.popleft())
                if newborn is not None:
                    return newborn
            self._settle()
            self._agent.flush()
        self._let_go()
        return None

    def _done(self) -> bool:
        if self._leave_by is None:
            return False
        return time.monotonic() >= self._leave_by or not (self._trainers or self._agent.backlog_bytes)

    def _idle_s(self) -> float | None:
        wakes = [self._leave_by, *(trainer.next_at for trainer in self._trainers.values())]
        if self._reading:
            wakes += [pipe.update_at for trainer in self._trainers.values() for pipe in trainer.pipes]
        soonest = min((at for at in wakes if at is not None), default=None)
        return None if soonest is None else max(0.0, soonest - time.monotonic())

    def _keep_the_agents_pace(self) -> None:
        backlog = self._agent.backlog_bytes
        if self._agent.closed:
            self._unwatch(self._agent)
        else:
            hear = selectors.EVENT_READ if backlog < _BACKLOG_DEAF_BYTES else 0
            tell = selectors.EVENT_WRITE if backlog else 0
            self._selector.modify(self._agent, hear | tell, self._listen)
        reading = backlog < (_BACKLOG_HIGH_BYTES if self._reading else _BACKLOG_LOW_BYTES)
        if reading != self._reading:
            self._reading = reading
            for trainer in self._trainers.values():
                for pipe in trainer.pipes:
                    self._watch(trainer, pipe) if reading else self._unwatch(pipe)

    def _listen(self) -> None:
        self._heard.extend(self._agent.receive())

    def _obey(self, line: bytes) -> Newborn | None:
        try:
            command = protocol.decode_command(line)
            match command:
                case Fork():
                    return self._fork(command)
                case Stop():
                    self._stop(command)
                case Abort():
                    self._abort(command)
                case Exit():
                    self._leave()
                case _:
                    assert_never(command)
        except (Unreadable, _CannotObey) as refusal:
            self._agent.send(protocol.Refused(str(refusal)))
        return None

    def _fork(self, command: Fork) -> Newborn | None:
        for spec in command.trainers:
            trainer = command.generation, spec.rank
            if trainer in self._trainers:
                self._agent.send(protocol.ForkFailed(*trainer, ALREADY_RUNNING))
                continue
            if self._leave_by is not None:
                self._agent.send(protocol.ForkFailed(*trainer, ENDING))
                continue
            try:
                born = fork_trainer(command.generation, spec)
            except OSError as error:
                self._agent.send(protocol.ForkFailed(*trainer, str(error)))
                continue
            if isinstance(born, Newborn):
                self._let_go()
                return born
            self._adopt(born)
        return None

    def _adopt(self, trainer: TrainerProcess) -> None:
        self._trainers[trainer.generation, trainer.rank] = trainer
        self._selector.register(trainer.pidfd, selectors.EVENT_READ, partial(self._reap, trainer))
        if self._reading:
            for pipe in trainer.pipes:
                self._watch(trainer, pipe)
        self._agent.send(protocol.Forked(trainer.generation, trainer.rank, trainer.pid))

    def _stop(self, command: Stop) -> None:
        for trainer in self._up_to(command.generation):
            trainer.stop(command.grace_s)
        self._stops.append(command.generation)

    def _abort(self, command: Abort) -> None:
        trainer = self._trainers.get((command.generation, command.rank))
        if trainer is None:
            raise _CannotObey(f"abort: generation {command.generation} has no trainer of rank {command.rank}")
        try:
            trainer.abort(command.why)
        except PermissionError as error:
            raise _CannotObey(f"abort: {error}") from error

    def _leave(self) -> None:
        if self._leave_by is None:
            self._leave_by = time.monotonic() + protocol.EXIT_GRACE_S + _UNKILLABLE_S
            for trainer in self._trainers.values():
                trainer.stop(protocol.EXIT_GRACE_S)

    def _up_to(self, generation: int) -> list[TrainerProcess]:
        return [trainer for trainer in self._trainers.values() if trainer.generation <= generation]

    def _read(self, trainer: TrainerProcess, pipe: Pipe) -> None:
        self._pass_on(trainer, pipe, pipe.read() or [])
        if pipe.ended:
            self._unwatch(pipe)

    def _pass_on(self, trainer: TrainerProcess, pipe: Pipe, lines: list[str]) -> None:
        if not lines:
            return
        if pipe.source == "progress":
            self._pass_progress(trainer, lines)
            return
        self._agent.send(protocol.Output(trainer.generation, trainer.rank, pipe.source, tuple(lines)))

    def _pass_progress(self, trainer: TrainerProcess, lines: list[str]) -> None:
        said = list(_decoded(lines))
        reports = tuple(_reports(line for line in said if not progress.is_checkpoint(line)))
        if reports:
            self._agent.send(protocol.Progress(trainer.generation, trainer.rank, reports))
        if any(map(progress.is_checkpoint, said)):
            self._agent.send(protocol.Checkpointed(trainer.generation, trainer.rank))

    def _pass_updates_on(self, trainer: TrainerProcess) -> None:
        for pipe in trainer.pipes:
            self._pass_on(trainer, pipe, pipe.update())

    def _reap(self, trainer: TrainerProcess) -> None:
        self._selector.unregister(trainer.pidfd)
        trainer.reap()

    def _settle(self) -> None:
        for trainer in list(self._trainers.values()):
            trainer.kill_if_due()
            if self._reading:
                self._pass_updates_on(trainer)
            if trainer.settled:
                self._record_exit(trainer)
        for generation in [stop for stop in self._stops if not self._up_to(stop)]:
            self._stops.remove(generation)
            self._agent.send(protocol.Stopped(generation))

    def _record_exit(self, trainer: TrainerProcess) -> None:
        for pipe in trainer.pipes:
            for lines in pipe.drain():
                self._pass_on(trainer, pipe, lines)
            self._unwatch(pipe)
        error = trainer.stacks if trainer.stalled else error_message(trainer.error_file)
        trainer.close()
        del self._trainers[trainer.generation, trainer.rank]
        exitcode = trainer.exitcode or 0
        self._agent.send(
            protocol.Exited(
                trainer.generation,
                trainer.rank,
                *code_and_signal(exitcode),
                tail=tuple(trainer.tail.shown()),
                error=error,
                peer_lost=exitcode != 0 and not trainer.stalled and peer_lost(trainer.tail.lines()),
                stalled=trainer.stalled,
                hint=hint_of(trainer.tail.lines()) if exitcode > 0 else None,
            )
        )

    def _watch(self, trainer: TrainerProcess, pipe: Pipe) -> None:
        if not pipe.ended:
            self._selector.register(pipe, selectors.EVENT_READ, partial(self._read, trainer, pipe))

    def _unwatch(self, watched: Pipe | AgentConnection) -> None:
        if watched in self._selector.get_map():
            self._selector.unregister(watched)

    def _let_go(self) -> None:
        """Closes all files without unregistering them: a newborn shares the epoll instance with the host."""
        self._selector.close()
        self._agent.close()
        for trainer in self._trainers.values():
            trainer.close()


def _decoded(lines: Iterable[str]) -> Iterator[object]:
    for line in lines:
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def _reports(said: Iterable[object]) -> Iterator[StepReport]:
    for line in said:
        with contextlib.suppress(Unreadable):
            yield read_report(line)
