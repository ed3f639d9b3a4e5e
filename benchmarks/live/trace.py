"""Traces of trainers, and figures derived from them. All times are of this machine's monotonic clock."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import Struct

_NEAR_STEPS = 2
_RECENT = 1000
"""Number of events that is more than all ranks write in a few steps."""


class Traced(Struct, frozen=True):
    at: float
    what: str
    rank: int
    generation: int
    step: int
    samples: int = 0
    pid: int = 0


class Moment(Struct, frozen=True):
    """A world that computes: its ranks and its step."""

    generation: int
    step: int
    ranks: Mapping[int, int]
    """Pid of each rank."""


_decoder = msgspec.json.Decoder(Traced)


class Reader:
    """Reads only new lines of the traces, to use little of the cores that are measured."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_bytes: dict[Path, int] = {}
        self._events: list[Traced] = []

    def read(self) -> Sequence[Traced]:
        """All events so far, in order of time, without an unfinished last line."""
        found: list[Traced] = []
        for file in self._folder.glob("*.jsonl"):
            with file.open("rb") as opened:
                opened.seek(self._read_bytes.get(file, 0))
                text = opened.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read_bytes[file] = self._read_bytes.get(file, 0) + len(whole)
            pid = int(file.stem)
            found += (msgspec.structs.replace(_decoder.decode(line), pid=pid) for line in whole.splitlines())
        if found:
            self._events = sorted([*self._events, *found], key=lambda event: event.at)
        return self._events


def current(events: Sequence[Traced]) -> Moment | None:
    """The world of the newest steps; a rank that is more than two steps behind has left it."""
    last: dict[int, Traced] = {}
    for event in events[-_RECENT:]:
        if event.what == "step":
            last[event.pid] = event
    if not last:
        return None
    generation = max(event.generation for event in last.values())
    step = max(event.step for event in last.values() if event.generation == generation)
    ranks = {
        event.rank: pid
        for pid, event in last.items()
        if event.generation == generation and event.step >= step - _NEAR_STEPS
    }
    return Moment(generation, step, ranks)


def steps_of(events: Iterable[Traced], pid: int) -> list[Traced]:
    return [event for event in events if event.what == "step" and event.pid == pid]


def durations(steps: Sequence[Traced], first: int, last: int) -> dict[int, float]:
    """Durations in ms of the consecutive steps of a process from `first` to `last`, inclusive."""
    return {
        after.step: (after.at - before.at) * 1000
        for before, after in pairwise(steps)
        if first <= after.step <= last and after.step == before.step + 1
    }


def as_one(by_process: Iterable[Sequence[Traced]]) -> list[Traced]:
    """The steps of the world; each ends when its last process ends it."""
    last: dict[int, Traced] = {}
    for step in sorted((step for own in by_process for step in own), key=lambda step: step.at):
        last[step.step] = step
    return [last[number] for number in sorted(last)]


def slowest(by_process: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """The longest duration of each step."""
    longest: dict[int, float] = {}
    for own in by_process:
        for step, took_ms in own.items():
            longest[step] = max(longest.get(step, 0.0), took_ms)
    return longest


def median_of(by_process: Iterable[Mapping[int, float]]) -> float | None:
    values = [took_ms for own in by_process for took_ms in own.values()]
    return statistics.median(values) if values else None


def first_of(events: Iterable[Traced], what: str, pid: int, generation: int, after: float) -> Traced | None:
    """The first such event of a process in a later generation than `generation`, after that time."""
    return next(
        (
            event
            for event in events
            if event.what == what and event.pid == pid and event.generation > generation and event.at > after
        ),
        None,
    )


def last_of_all(
    events: Sequence[Traced], what: str, pids: Iterable[int], generation: int, after: float
) -> float | None:
    """Time at which the last of these processes had such an event; None if one has not."""
    firsts = [first_of(events, what, pid, generation, after) for pid in pids]
    times = [first.at for first in firsts if first is not None]
    return max(times) if times and len(times) == len(firsts) else None
