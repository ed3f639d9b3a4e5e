"""What trainers wrote down, and what follows from it. All times are of this machine's monotonic clock."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import Struct

_NEAR_STEPS = 2
_RECENT = 1000
"""Events: more than all ranks write in a few steps."""


class Traced(Struct, frozen=True):
    at: float
    what: str
    rank: int
    generation: int
    step: int
    samples: int = 0
    pid: int = 0


class Moment(Struct, frozen=True):
    """A world in which all its ranks compute: who is which of them, and how far they are."""

    generation: int
    step: int
    ranks: Mapping[int, int]
    """The process of each rank."""


_decoder = msgspec.json.Decoder(Traced)


class Reader:
    """Reads what is new only: whoever measures must not keep a core busy with what was read before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_bytes: dict[Path, int] = {}
        self._events: list[Traced] = []

    def read(self) -> Sequence[Traced]:
        """All so far, in order of time. A last line without an end is still being written, and does not count."""
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


def present(events: Sequence[Traced]) -> Moment | None:
    """As the newest steps tell it: whoever is more than a step or two behind is no more in the world."""
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
    """In ms, of each step from `first` to `last`, both included, that this process did in turn."""
    return {
        after.step: (after.at - before.at) * 1000
        for before, after in pairwise(steps)
        if first <= after.step <= last and after.step == before.step + 1
    }


def as_one(by_process: Iterable[Sequence[Traced]]) -> list[Traced]:
    """The steps of the world: each is done when the last of its processes has done it."""
    last: dict[int, Traced] = {}
    for step in sorted((step for own in by_process for step in own), key=lambda step: step.at):
        last[step.step] = step
    return [last[number] for number in sorted(last)]


def slowest(by_process: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Of each step: how long it took the slowest."""
    longest: dict[int, float] = {}
    for own in by_process:
        for step, took_ms in own.items():
            longest[step] = max(longest.get(step, 0.0), took_ms)
    return longest


def median_of(by_process: Iterable[Mapping[int, float]]) -> float | None:
    values = [took_ms for own in by_process for took_ms in own.values()]
    return statistics.median(values) if values else None


def first_of(events: Iterable[Traced], what: str, pid: int, generation: int, after: float) -> Traced | None:
    """Of a later generation than that, after that time."""
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
    """When the last of these processes came to it; None if one has not."""
    firsts = [first_of(events, what, pid, generation, after) for pid in pids]
    times = [first.at for first in firsts if first is not None]
    return max(times) if times and len(times) == len(firsts) else None
