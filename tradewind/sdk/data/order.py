"""The order of samples: which samples belong to which step.

The order depends only on the seed, and the global batch of a step only on its number, so no change of the world changes
the samples of a step. `trainer/shares.py` divides the positions of that batch among ranks.
"""

from functools import lru_cache, partial

import torch

from tradewind.protocol.trainer import Ranges
from tradewind.sdk.seeds import stable_hash


class Order:
    """An endless sequence of the dataset's indices: epoch after epoch, each shuffled by seed and epoch.

    Step k takes the k-th `batch` indices, so a batch may cross epochs and may be larger than one.
    """

    def __init__(self, size: int, batch: int, seed: int, shuffle: bool = True) -> None:
        if size < 1 or batch < 1:
            raise ValueError(f"the batch ({batch}) and the number of samples ({size}) must be at least 1")
        self.size = size
        self.batch = batch
        self.seed = seed
        self.shuffled = shuffle
        # Two epochs: one thread may read ahead into the next epoch while another reads the end of this one.
        self._permutation = lru_cache(maxsize=2)(partial(_permutation, size, seed))

    def indices(self, step: int, ranges: Ranges | None = None) -> list[int]:
        """The dataset indices of the step's global batch, or of the given positions of it."""
        found: list[int] = []
        for first, last in ((0, self.batch),) if ranges is None else ranges:
            if step < 0 or not 0 <= first <= last <= self.batch:
                raise ValueError(f"positions {first} to {last} are not in a batch of {self.batch} (step {step})")
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
    # Its own generator leaves the script's random numbers unchanged; the CPU gives the same order on every device.
    generator = torch.Generator(device="cpu").manual_seed(stable_hash(seed, epoch))
    return torch.randperm(size, generator=generator, dtype=torch.int64, device="cpu")
