"""Checkpoints that scripts write without reporting them: changes of `launch.checkpoint_path`.

The worker with rank 0 looks at the path once a second. A change counts when sizes stay the same for two more looks,
because a checkpoint may still be in writing.
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
"""The time of the newest change in nanoseconds, bytes, entries; all 0 if the path does not exist."""


class Watched:
    """The looks at the path during one world."""

    def __init__(self, generation: Generation, first: Look) -> None:
        self.generation = generation
        self._last = first
        self._changed = False
        self._same_size = LOOKS_UNCHANGED

    def is_written(self, look: Look) -> bool:
        """True if this look completes a checkpoint."""
        before, self._last = self._last, look
        self._changed = self._changed or look != before
        self._same_size = self._same_size + 1 if look[1:] == before[1:] else 0
        if not self._changed or self._same_size < LOOKS_UNCHANGED or look[2] == 0:
            return False
        self._changed = False
        return True


def look_at(path: Path) -> Look:
    """Looks at the path and, for a folder, at a bounded number of entries on two levels."""
    found = list(islice(_stats(path, DEPTH), ENTRIES_AT_MOST))
    return max((stat.st_mtime_ns for stat in found), default=0), sum(stat.st_size for stat in found), len(found)


def watched_path(state: WorkerState) -> Path | None:
    """Returns the path to look at; None if this worker does not have rank 0, or the job names no path."""
    member, world = state.member, state.world
    if member is None or world is None or member.first_rank != 0 or state.phase is not WorkerPhase.READY:
        return None
    path = world.launch.checkpoint_path
    return Path(world.launch.workdir or ".") / path if path is not None else None


async def watch(state_now: Callable[[], WorkerState], post: Callable[[CheckpointReported], None], clock: Clock) -> None:
    """Looks and posts CheckpointReported, until cancelled."""
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
    """Yields the stats of the path and its entries. Ignores entries that vanish meanwhile."""
    try:
        yield path.stat()
        names = _names(path) if depth and path.is_dir() else []
    except (OSError, ValueError):  # ValueError: a null byte in the path
        return
    for name in names:
        yield from _stats(path / name, depth - 1)


def _names(folder: Path) -> list[str]:
    """Returns a bounded number of names: a folder may have millions of entries."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, ENTRIES_AT_MOST))
