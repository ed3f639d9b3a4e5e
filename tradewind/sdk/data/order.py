"""Which samples a step takes.

The order of samples depends on the seed alone and the global batch of a step on its number alone, so no change of the
world changes what is trained on. Who computes which positions of that batch: `trainer/shares.py`.
"""

from functools import lru_cache, partial

import torch

from tradewind.protocol.trainer import Ranges
from tradewind.sdk.seeds import stable_hash


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
    generator = torch.Generator(device="cpu").manual_seed(stable_hash(seed, epoch))
    return torch.randperm(size, generator=generator, dtype=torch.int64, device="cpu")
