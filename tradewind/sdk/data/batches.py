"""Gives the samples of a step to the script, and records what it computed until the step is committed."""

from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from tradewind.protocol.trainer import Ranges
from tradewind.sdk.buckets import Buckets
from tradewind.sdk.certificate import Digest
from tradewind.sdk.data.loader import Loader
from tradewind.sdk.diagnostics import Instruments
from tradewind.sdk.seeds import seed_all
from tradewind.sdk.trainer.shares import count, merged, split


class Batches:
    """The batches of the current step. A batch has at most `max_share` samples."""

    def __init__(
        self,
        loader: Loader,
        buckets: Buckets,
        scaler: GradScaler | None,
        seed: int,
        max_share: int,
        instruments: Instruments,
    ) -> None:
        self._loader = loader
        self._buckets = buckets
        self._scaler = scaler
        self._seed = seed
        self._max_share = max_share
        self._instruments = instruments
        self.computed: Ranges = ()
        """Positions of the current step whose gradients are in the model."""
        self.digest = Digest()
        """Digest of those samples."""
        self.loss_sum = 0.0
        """The mean loss of those samples, times their number."""
        self._weight = 0.0
        self._owed = False
        """True while the script has a batch and has not called backward for it."""

    def hand_out(self, step: int, todo: Ranges, rank: int) -> Generator[Any, None, None]:
        """Yields the first batch of what is to be computed; autograd adds up the gradients of all batches."""
        part, rest = split(todo, self._max_share)
        reading = self._loader.read(step, part)
        self.expect(step, rest)
        self._weight = float(count(part))
        self._owed = True
        # Random numbers depend on the seed, the step and the first sample, not on the rank.
        seed_all(self._buckets.device, self._seed, step, part[0][0])
        self._instruments.faults("compute", rank, step)
        if not self.computed:
            self._instruments.meter.hand_out()
        before = self._buckets.some() if self.computed else None
        yield reading.batch
        if self._owed:
            raise RuntimeError(
                "the loop took a batch without calling run.backward(loss) for it: the run would lose its samples"
            )
        if not self._buckets.grew_from(before):
            raise RuntimeError(
                "the gradients of this step were cleared before the all-reduce: remove zero_grad() from the loop, the "
                "run clears gradients after each step"
            )
        self.digest += Digest.of(reading.indices)
        self.computed = merged((*self.computed, *part))

    def backward(self, loss: Tensor) -> None:
        if self._weight == 0:
            raise RuntimeError("call run.backward(loss) inside the loop over the run, once for each batch")
        weighted = loss * (self._weight / self._loader.batch)
        torch.autograd.backward(weighted if self._scaler is None else self._scaler.scale(weighted))
        self.loss_sum += float(loss.detach()) * self._weight
        self._weight = 0.0
        self._owed = False

    def expect(self, step: int, todo: Ranges) -> None:
        """Begins to read the next batch."""
        if todo:
            self._loader.expect(step, split(todo, self._max_share)[0])

    def forget(self) -> None:
        """Forgets what was computed: the step is committed, or its gradients do not count any more."""
        self.computed = ()
        self.digest = Digest()
        self.loss_sum = 0.0
