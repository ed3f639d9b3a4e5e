"""The traces of the trainers: the times of their steps, on this machine's monotonic clock."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from messages.ids import Generation, Rank

COMMITS = ("step", "caught_up")
"""Records of a completed step: by an all-reduce, or received from a rank that took part in it."""


class Moment(Struct, frozen=True):
    at: float
    """Monotonic seconds."""
    what: str
    rank: Rank
    generation: Generation
    step: int
    pid: int = 0

    @property
    def is_commit(self) -> bool:
        return self.what in COMMITS


def read(folder: Path) -> tuple[Moment, ...]:
    """All records. Each trainer writes a file named by its process id; a killed one may leave half a line."""
    found: list[Moment] = []
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_bytes().splitlines():
            try:
                found.append(msgspec.structs.replace(_decoder.decode(line), pid=int(file.stem)))
            except msgspec.DecodeError:
                continue
    return tuple(sorted(found, key=lambda moment: moment.at))


_decoder = msgspec.json.Decoder(Moment)


def by_trainer(moments: Iterable[Moment]) -> dict[int, list[Moment]]:
    """The completed steps of each process, in order."""
    trainers: dict[int, list[Moment]] = {}
    for moment in moments:
        if moment.is_commit:
            trainers.setdefault(moment.pid, []).append(moment)
    return trainers


def usual_step_s(moments: Iterable[Moment]) -> float:
    """Median seconds of a step in an unchanged world."""
    took_s = [
        after.at - before.at
        for commits in by_trainer(moments).values()
        for before, after in pairwise(commits)
        if before.generation == after.generation
    ]
    return median(took_s) if took_s else 0.0


def pause_s(moments: tuple[Moment, ...], before: Generation, after: Generation) -> float:
    """Seconds by which the longest step at a change exceeds a usual one, for trainers of both worlds.

    The change ends when joining workers take their shares of a step.
    """
    settled = max((m.step + 1 for m in moments if m.what == "active" and m.generation == after), default=0)
    gaps_s = [gap_s for commits in by_trainer(moments).values() for gap_s in _gaps_s(commits, before, after, settled)]
    if not gaps_s:
        last = max((m.at for m in moments if m.is_commit and m.generation == before), default=0.0)
        first = min((m.at for m in moments if m.is_commit and m.generation == after), default=last)
        gaps_s = [first - last]
    return max(0.0, max(gaps_s) - usual_step_s(moments))


def repeated_steps(moments: tuple[Moment, ...], before: Generation, after: Generation) -> int:
    """Steps that were completed and computed again in the next world.

    Only trainers of both worlds count, or all trainers if there are none: a step that only lost trainers completed is
    not a step of the run.
    """
    trainers = by_trainer(moments)
    over = [commits for commits in trainers.values() if {before, after} <= {m.generation for m in commits}]
    commits = [m for commits in over or trainers.values() for m in commits]
    had = {m.step for m in commits if m.generation == before}
    return len(had & {m.step for m in commits if m.generation == after and m.what == "step"})


def _gaps_s(commits: list[Moment], before: Generation, after: Generation, settled: int) -> list[float]:
    """The times between a trainer's last step in a world and the first full step in the next."""
    last = max((place for place, m in enumerate(commits) if m.generation == before), default=None)
    there = [place for place, m in enumerate(commits) if m.generation == after]
    if last is None or not there:
        return []
    whole = (place for place in there if commits[place].what == "step" and commits[place].step >= settled)
    until = next(whole, there[-1])
    return [later.at - earlier.at for earlier, later in pairwise(commits[last : until + 1])]
