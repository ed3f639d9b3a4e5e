"""The evidence of a run: files of the trainers, views and events of the jobs, logs of the parts."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from messages.api import EventLine, JobView
from tests.chaos.injector import Injected
from tests.chaos.jobs import Job
from tests.chaos.stage import Exit

TRACEBACK = "Traceback (most recent call last)"
EXCERPT_LINES = 40


@dataclass(frozen=True)
class Order:
    """A rank that slept in its loop body."""

    rank: int
    step: int
    generation: int
    begin_s: float
    end_s: float | None
    """None if it never woke up."""


@dataclass(frozen=True)
class Traced:
    """One line of a trainer's trace."""

    at_s: float
    what: str
    generation: int
    step: int


@dataclass(frozen=True)
class JobEvidence:
    name: str
    steps: int
    samples: int
    view: JobView | None = None
    finals: tuple[dict[str, Any], ...] = ()
    """What each rank wrote at its end."""
    orders: tuple[Order, ...] = ()
    traces: tuple[tuple[Traced, ...], ...] = ()
    """One for each trainer process."""
    events: tuple[EventLine, ...] = ()


@dataclass(frozen=True)
class Evidence:
    jobs: dict[str, JobEvidence]
    injected: tuple[Injected, ...] = ()
    exits: tuple[Exit, ...] = ()
    """Parts that ended by themselves."""
    strangers: tuple[str, ...] = ()
    """Processes of jobs that were there after all jobs had ended."""
    left: tuple[str, ...] = ()
    """Processes that were there after everything had ended."""
    tracebacks: tuple[str, ...] = ()
    shown: tuple[str, ...] = field(default=())
    """Lines that `tradewind events` printed."""


def gather_job(job: Job, view: JobView | None, events: Iterable[EventLine]) -> JobEvidence:
    return JobEvidence(
        name=job.name,
        steps=job.steps,
        samples=job.samples,
        view=view,
        finals=tuple(json.loads(file.read_text()) for file in sorted(job.folder.glob("final-*.json"))),
        orders=tuple(_order(job.folder, file) for file in sorted(job.folder.glob("begun-*.json"))),
        traces=tuple(tuple(_trace(file)) for file in sorted(job.traces.glob("*.jsonl"))),
        events=tuple(events),
    )


def find_tracebacks(logs: Iterable[Path]) -> Iterator[str]:
    for file in logs:
        lines = file.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if TRACEBACK in line:
                yield "\n".join((f"{file.name}:{number + 1}", *lines[number : number + EXCERPT_LINES]))
                break


def _order(folder: Path, begun: Path) -> Order:
    """An order; the record of its end repeats all of the record of its begin."""
    done = folder / begun.name.replace("begun-", "done-")
    said = json.loads((done if done.exists() else begun).read_text())
    return Order(said["rank"], said["step"], said["generation"], said["begin_s"], said.get("end_s"))


def _trace(file: Path) -> Iterator[Traced]:
    """The last line of a killed trainer may be half a line."""
    for line in file.read_text().splitlines():
        if line.endswith("}"):
            said = json.loads(line)
            yield Traced(said["at"], said["what"], said["generation"], said["step"])
