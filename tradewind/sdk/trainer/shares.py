"""Division of the samples of one step among ranks.

The batch of a step depends only on its number. A world decides only which rank computes which *positions* of it.
"""

from collections.abc import Sequence
from functools import lru_cache

from tradewind.protocol.trainer import Ranges

Range = tuple[int, int]
"""[first, last) positions in the global batch of one step."""


def count(ranges: Ranges) -> int:
    return sum(last - first for first, last in ranges)


def merged(ranges: Ranges) -> Ranges:
    """Sorts the ranges and joins those that touch."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if first == last:
            continue
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    left: list[Range] = list(merged(ranges))
    for taken_first, taken_last in taken:
        left = [
            piece
            for first, last in left
            for piece in ((first, min(last, taken_first)), (max(first, taken_last), last))
            if piece[0] < piece[1]
        ]
    return tuple(left)


def shares(batch: int, active: Sequence[bool]) -> tuple[Ranges, ...]:
    """Returns by rank: one range of the batch for each active rank, as even as possible."""
    return _shares(batch, tuple(active))


@lru_cache(maxsize=64)
def _shares(batch: int, active: tuple[bool, ...]) -> tuple[Ranges, ...]:
    return deal(batch, ((),) * len(active), active)


def missing(batch: int, held: Sequence[Ranges]) -> Ranges:
    """The positions that no rank holds."""
    gaps: list[Range] = []
    reached = 0
    for first, last in merged(tuple(one for ranges in held for one in ranges)):
        gaps.append((reached, first))
        reached = last
    return merged((*gaps, (reached, batch)))


def deal(batch: int, held: Sequence[Ranges], active: Sequence[bool]) -> tuple[Ranges, ...]:
    """Returns by rank what it computes in addition, so that no position is missing and the totals are even."""
    wanted = missing(batch, held)
    quotas = _quotas(count(wanted), [count(ranges) for ranges in held], active)
    dealt: list[Ranges] = []
    for quota in quotas:
        taken, wanted = split(wanted, quota)
        dealt.append(taken)
    return tuple(dealt)


def _quotas(wanted: int, held: Sequence[int], active: Sequence[bool]) -> list[int]:
    """Returns by rank how many positions it gets: ranks that hold least get most, up to one common level."""
    quotas = [0] * len(active)
    lowest = sorted((held[rank], rank) for rank, is_active in enumerate(active) if is_active)
    if wanted and not lowest:
        raise ValueError(f"no rank is active to compute {wanted} samples")
    below = sum(holds for holds, _ in lowest)
    while lowest:
        level, left_over = divmod(wanted + below, len(lowest))
        highest, _ = lowest[-1]
        if level >= highest:
            for place, (holds, rank) in enumerate(lowest):
                quotas[rank] = level - holds + (place < left_over)
            break
        below -= highest
        lowest.pop()
    return quotas


def split(ranges: Ranges, amount: int) -> tuple[Ranges, Ranges]:
    """Returns the first `amount` positions, and the others."""
    taken: list[Range] = []
    for place, (first, last) in enumerate(ranges):
        if amount < last - first:
            head: Ranges = ((first, first + amount),) if amount else ()
            return (*taken, *head), ((first + amount, last), *ranges[place + 1 :])
        taken.append((first, last))
        amount -= last - first
    return tuple(taken), ()
