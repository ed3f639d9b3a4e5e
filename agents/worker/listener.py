"""Messages of the host and the trainers, turned into events of the core, log lines and progress."""

from collections.abc import Callable, Sequence
from typing import assert_never

from agents.worker.events import (
    CheckpointReported,
    CheckpointWritten,
    HostWarmed,
    StepCompleted,
    TrainerAttached,
    TrainerDetached,
    TrainerExited,
    TrainerForked,
    TrainerForkFailed,
    TrainerSaid,
    WorkerEvent,
)
from agents.worker.outbox import LogOutbox
from agents.worker.progress import ProgressBook
from agents.worker.terminal import Echo
from agents.worker.trainer import Birth
from agents.worker.trainer_socket import Trainers
from agents.worker.translation import birth_of, counted_of, exit_of, status_of
from messages.ids import Generation, Rank
from messages.measured import StepsMeasured
from messages.workers import WrittenCheckpoint
from messages.worlds import StepsCounted
from runtime.clock import Clock
from tradewind.protocol import host as host_protocol
from tradewind.protocol import trainer as trainer_protocol
from tradewind.protocol.steps import StepReport


class Listener:
    def __init__(
        self,
        post: Callable[[WorkerEvent], None],
        outbox: LogOutbox,
        progress: ProgressBook,
        echo: Echo | None,
        clock: Clock,
    ) -> None:
        self.trainers = Trainers(self.hear_trainer)
        self._post = post
        self._outbox = outbox
        self._progress = progress
        self._echo = echo
        self._clock = clock

    def hear_host(self, message: host_protocol.HostMessage) -> None:
        at_s = self._clock.monotonic_s()
        match message:
            case host_protocol.Hello():
                self._post(HostWarmed(at_s))
            case host_protocol.Forked():
                self._post(TrainerForked(at_s, *birth_of(message), message.pid))
            case host_protocol.ForkFailed():
                self._post(TrainerForkFailed(at_s, *birth_of(message), message.error))
            case host_protocol.Output():
                self._on_output(message)
            case host_protocol.Progress():
                generation, rank = self._place_of(birth_of(message))
                self._on_reported(generation, rank, message.reports)
            case host_protocol.Checkpointed():
                generation, _ = self._place_of(birth_of(message))
                self._post(CheckpointReported(at_s, generation, self._clock.wall_s()))
            case host_protocol.Exited():
                self.trainers.forget(birth_of(message))
                self._outbox.hurry()
                self._post(TrainerExited(at_s, Generation(message.generation), exit_of(message)))
            case host_protocol.Stopped() | host_protocol.Refused():
                pass
            case _:
                assert_never(message)

    def hear_trainer(self, birth: Birth, message: trainer_protocol.TrainerMessage | None) -> None:
        at_s = self._clock.monotonic_s()
        match message:
            case None:
                self._post(TrainerDetached(at_s, *birth))
            case trainer_protocol.Attach():
                self._post(TrainerAttached(at_s, *birth))
            case trainer_protocol.Status():
                certificate = self.trainers.certificate(message)
                self._post(TrainerSaid(at_s, *birth, status_of(message, certificate)))
            case trainer_protocol.Progress(generation, rank, reports):
                measured, counted = self.trainers.measured(message), counted_of(message)
                self._on_reported(Generation(generation), Rank(rank), reports, measured, counted)
            case trainer_protocol.Checkpoint(step, folder, at):
                self._post(CheckpointWritten(at_s, WrittenCheckpoint(step, folder, at)))
            case _:
                assert_never(message)

    def _place_of(self, birth: Birth) -> Birth:
        """Returns the trainer's current world and rank. The host knows only those that it was forked with."""
        said = self.trainers.newest(birth)
        return birth if said is None or not said.generation else (Generation(said.generation), Rank(said.rank))

    def _on_output(self, output: host_protocol.Output) -> None:
        stderr = output.stream == "stderr"
        generation, rank = self._place_of(birth_of(output))
        self._outbox.add(generation, rank, output.lines, stderr=stderr)
        if self._echo is not None:
            self._echo.add(rank, output.lines, stderr=stderr)

    def _on_reported(
        self,
        generation: Generation,
        rank: Rank,
        reports: Sequence[StepReport],
        measured: StepsMeasured | None = None,
        counted: StepsCounted | None = None,
    ) -> None:
        self._progress.add(generation, rank, reports, measured, counted)
        at_s = self._clock.monotonic_s()
        steps = [report.step for report in reports]
        for step in dict.fromkeys((*steps[:1], *steps[-1:])):
            self._post(StepCompleted(at_s, generation, rank, step))
