"""How the survivors of a halted world continue. The master decides it from their reports, without a collective.

If a survivor received the result of an all-reduce, that step is done, and the others get the result from it. In the
step after it, only the samples are recomputed whose gradients no survivor holds.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.job.ranks import ranks_of
from messages.ids import Range, Rank, WorkerId
from messages.workers import TrainerStatus
from messages.worlds import Entry, LiveWorld, Member

Held = tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A rank of the next world, and the survivor that takes it."""

    rank: Rank
    survivor: TrainerStatus | None
    """None for a rank that enters without the state."""


def repair(
    next_members: Sequence[Member],
    survivors: Mapping[WorkerId, Sequence[TrainerStatus]],
    leaving_workers: tuple[WorkerId, ...] = (),
) -> LiveWorld:
    """Plans the next world. A member that is not among the survivors enters without the state."""
    places = [place for member in next_members for place in _places(member, survivors.get(member.worker, ()))]
    resume = max((place.survivor.done for place in places if place.survivor is not None), default=0)
    newest = [place.rank for place in places if place.survivor is not None and place.survivor.done == resume]
    return LiveWorld(
        entry=Entry.REPAIR,
        previous=tuple(place.survivor.rank if place.survivor is not None else -1 for place in places),
        leaving_workers=leaving_workers,
        resume=resume,
        source=newest[0] if newest else Rank(0),
        laggards=tuple(
            place.rank for place in places if place.survivor is not None and place.survivor.done == resume - 1
        ),
        held=_apart([_held_of(place, resume) for place in places]),
    )


def _places(member: Member, survivors: Sequence[TrainerStatus]) -> list[_Place]:
    by_local = {trainer.local_rank: trainer for trainer in survivors}
    return [_Place(rank, by_local.get(local)) for local, rank in enumerate(ranks_of(member))]


def _held_of(place: _Place, resume: int) -> Held:
    return place.survivor.held if place.survivor is not None and place.survivor.done == resume else ()


def _apart(held: list[Held]) -> tuple[Held, ...]:
    """Held samples of each rank, none twice: if two ranks hold the same sample, the second drops all that it holds."""
    taken = _Ranges()
    return tuple(mine if taken.add(mine) else () for mine in held)


class _Ranges:
    """Ranges that do not overlap, in order."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, ranges: Held) -> bool:
        """Adds all ranges, or none if one overlaps. True if they were added."""
        if any(self._overlaps(first, last) for first, last in ranges):
            return False
        for first, last in ranges:
            place = bisect_left(self._begins, first)
            self._begins.insert(place, first)
            self._ends.insert(place, last)
        return True

    def _overlaps(self, first: int, last: int) -> bool:
        place = bisect_left(self._begins, last)
        return place > 0 and self._ends[place - 1] > first
