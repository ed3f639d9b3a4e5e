"""Checkpoints that scripts write without reporting them: changes of `launch.checkpoint_path`.

The worker that holds rank 0 looks at the path once a second. A change counts when sizes have stayed the same for two
more looks: a checkpoint that is being written is none yet.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from agents.worker.events import CheckpointReported
from agents.worker.state import WorkerState
from messages.ids import Generation
from messages.workers import WorkerPhase
from runtime.clock import Clock

LOOK_EVERY_S = 1.0
LOOKS_UNCHANGED = 2
DEPTH = 2
ENTRIES_AT_MOST = 1000

Look = tuple[int, int, int]
"""The newest change in nanoseconds, bytes, entries; all 0 if nothing is there."""


class Watched:
    """What was seen at the path while one world runs."""

    def __init__(self, generation: Generation, first: Look) -> None:
        self.generation = generation
        self._last = first
        self._changed = False
        self._same_size = LOOKS_UNCHANGED

    def is_written(self, look: Look) -> bool:
        """Whether this look completes a checkpoint."""
        before, self._last = self._last, look
        self._changed = self._changed or look != before
        self._same_size = self._same_size + 1 if look[1:] == before[1:] else 0
        if not self._changed or self._same_size < LOOKS_UNCHANGED or look[2] == 0:
            return False
        self._changed = False
        return True


def look_at(path: Path) -> Look:
    """The path itself, and what is in it if it is a folder: two levels, and a bounded number of entries."""
    found = list(islice(_stats(path, DEPTH), ENTRIES_AT_MOST))
    return max((stat.st_mtime_ns for stat in found), default=0), sum(stat.st_size for stat in found), len(found)


def watched_path(state: WorkerState) -> Path | None:
    """Where this worker has to look; None if it does not hold rank 0, or the job names no path."""
    member, world = state.member, state.world
    if member is None or world is None or member.first_rank != 0 or state.phase is not WorkerPhase.READY:
        return None
    path = world.launch.checkpoint_path
    return Path(world.launch.workdir or ".") / path if path is not None else None


async def watch(state_now: Callable[[], WorkerState], post: Callable[[CheckpointReported], None], clock: Clock) -> None:
    """Runs until cancelled."""
    watched: Watched | None = None
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        state = state_now()
        path = watched_path(state)
        if path is None:
            continue
        look = await asyncio.to_thread(look_at, path)
        if watched is None or watched.generation != state.generation:
            watched = Watched(state.generation, look)
        elif watched.is_written(look):
            post(CheckpointReported(clock.monotonic_s(), state.generation, clock.wall_s()))


def _stats(path: Path, depth: int) -> Iterator[os.stat_result]:
    """Entries may go while they are looked at."""
    try:
        yield path.stat()
        names = _names(path) if depth and path.is_dir() else []
    except (OSError, ValueError):  # ValueError: no path has a NUL
        return
    for name in names:
        yield from _stats(path / name, depth - 1)


def _names(folder: Path) -> list[str]:
    """Bounded before they are sorted: a folder may have millions of entries."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, ENTRIES_AT_MOST))
