"""One real trainer of a test: its process, and what it has reported."""

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from messages.ids import WorkerId
from tradewind.protocol.steps import StepReport
from tradewind.protocol.trainer import Progress, Status, TrainerMessage


@dataclass(eq=False)
class TrainerProcess:
    process: BaseProcess
    worker: WorkerId
    machine: int
    """Number of its machine, in the order in which machines were used."""
    status: Status | None = None
    alive: bool = True
    is_stopped: bool = False
    """True if its agent has ended it."""
    reports: list[StepReport] = field(default_factory=list)
    measured: list[Any] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def exitcode(self) -> int | None:
        return self.process.exitcode

    def hear(self, message: TrainerMessage | None) -> None:
        match message:
            case Status():
                self.status = message
            case Progress():
                self.reports += message.reports
                self.measured.append(message.measured)

    def is_parked(self, generation: int) -> bool:
        return self.status is not None and self.status.parked >= generation

    def is_active(self) -> bool:
        return self.status is not None and self.status.active

    def has_finished(self) -> bool:
        return self.status is not None and self.status.finished

    def is_resting(self) -> bool:
        return self.status is not None and self.status.resting

    def send(self, signum: signal.Signals) -> None:
        """Sends a signal, unless the process is gone."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)

    def has_stopped(self) -> bool:
        return _state_of(self.pid) == "T"

    def wake(self) -> None:
        self.send(signal.SIGCONT)

    async def ended(self) -> None:
        """Waits for the end of the process. Only one task may call it: the exit status can be read once."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self.process.sentinel)
        self.process.join()
        self.alive = False
        self.gone.set()


def _state_of(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
