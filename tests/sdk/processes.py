"""One real trainer of a test: its process, its connection, and what it has reported."""

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
from tradewind.protocol.trainer import Status


@dataclass(eq=False)
class TrainerProcess:
    process: BaseProcess
    birth: int
    writer: asyncio.StreamWriter | None = None
    status: Status | None = None
    alive: bool = True
    reports: list[StepReport] = field(default_factory=list)
    measured: list[Any] = field(default_factory=list)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def is_attached(self) -> bool:
        return self.writer is not None

    def is_parked(self, generation: int) -> bool:
        return self.status is not None and self.status.parked >= generation

    def is_active(self) -> bool:
        return self.status is not None and self.status.active

    def has_finished(self) -> bool:
        return self.status is not None and self.status.finished

    def is_resting(self) -> bool:
        return self.status is not None and self.status.resting

    @property
    def generation(self) -> int:
        return self.status.generation if self.status is not None else 0

    @property
    def worker(self) -> WorkerId:
        return WorkerId(f"trainer-{self.birth}")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def has_stopped(self) -> bool:
        return _state_of(self.pid) == "T"

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def _state_of(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
