"""Which samples a step takes, and who computes them.

The order of samples depends on the seed alone and the global batch of a step on its number alone, so no change of the
world changes what is trained on. A world only decides who computes which *positions* of that batch.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache, partial

import torch

Range = tuple[int, int]
"""[first, last) positions in the global batch of one step."""
Ranges = tuple[Range, ...]


class Order:
    """The dataset's indices in an endless row: one epoch after the other, each shuffled anew from seed and epoch.

    Step k takes the k-th `batch` of that row, so batches cross the borders of epochs and may be larger than one.
    """

    def __init__(self, size: int, batch: int, seed: int, shuffle: bool = True) -> None:
        if size < 1 or batch < 1:
            raise ValueError(f"a batch of {batch} from {size} samples: there must be at least one of each")
        self.size = size
        self.batch = batch
        self.seed = seed
        self.shuffled = shuffle
        # Two epochs: while one thread still reads the end of one, another may read ahead into the next.
        self._permutation = lru_cache(maxsize=2)(partial(_permutation, size, seed))

    def indices(self, step: int, ranges: Ranges | None = None) -> list[int]:
        """Dataset indices of the step's global batch, or of those positions of it."""
        found: list[int] = []
        for first, last in ((0, self.batch),) if ranges is None else ranges:
            if step < 0 or not 0 <= first <= last <= self.batch:
                raise ValueError(f"step {step} has no positions {first} to {last} in a batch of {self.batch}")
            at, end = step * self.batch + first, step * self.batch + last
            while at < end:
                epoch, begin = divmod(at, self.size)
                taken = min(end - at, self.size - begin)
                found += self._of_epoch(epoch, begin, begin + taken)
                at += taken
        return found

    def _of_epoch(self, epoch: int, begin: int, end: int) -> list[int]:
        if not self.shuffled:
            return list(range(begin, end))
        indices: list[int] = self._permutation(epoch)[begin:end].tolist()
        return indices


def _permutation(size: int, seed: int, epoch: int) -> torch.Tensor:
    # A generator of its own, on the CPU whatever the default device is: the script's random numbers stay untouched.
    mixed = hashlib.blake2b(f"{seed} {epoch}".encode(), digest_size=8).digest()
    generator = torch.Generator(device="cpu").manual_seed(int.from_bytes(mixed, "big") >> 1)
    return torch.randperm(size, generator=generator, dtype=torch.int64, device="cpu")


def count(ranges: Ranges) -> int:
    return sum(last - first for first, last in ranges)


def merged(ranges: Ranges) -> Ranges:
    """Sorted, and joined where they touch."""
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
    """By rank: one stretch of the batch for each active rank, as even as can be."""
    return deal(batch, ((),) * len(active), active)


def missing(batch: int, held: Sequence[Ranges]) -> Ranges:
    """The positions that nobody holds."""
    gaps: list[Range] = []
    reached = 0
    for first, last in merged(tuple(one for ranges in held for one in ranges)):
        gaps.append((reached, first))
        reached = last
    return merged((*gaps, (reached, batch)))


def deal(batch: int, held: Sequence[Ranges], active: Sequence[bool]) -> tuple[Ranges, ...]:
    """By rank: what it computes in addition, so that nothing is missing and the totals are as even as can be."""
    wanted = missing(batch, held)
    quotas = _quotas(count(wanted), [count(ranges) for ranges in held], active)
    dealt: list[Ranges] = []
    for quota in quotas:
        taken, wanted = split(wanted, quota)
        dealt.append(taken)
    return tuple(dealt)


def _quotas(wanted: int, held: Sequence[int], active: Sequence[bool]) -> list[int]:
    """Fills up those who hold least, as water would."""
    quotas = [0] * len(active)
    lowest = sorted((held[rank], rank) for rank, is_active in enumerate(active) if is_active)
    if wanted and not lowest:
        raise ValueError(f"{wanted} samples are to be computed, and no rank is active")
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
    """The first `amount` positions, and the others."""
    taken: list[Range] = []
    for place, (first, last) in enumerate(ranges):
        if amount < last - first:
            head: Ranges = ((first, first + amount),) if amount else ()
            return (*taken, *head), ((first + amount, last), *ranges[place + 1 :])
        taken.append((first, last))
        amount -= last - first
    return tuple(taken), ()
