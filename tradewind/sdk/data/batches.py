"""Hands the samples of a step to the script, and keeps what came of them until the step is committed."""

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
    """`max_share`: at most so many samples are handed out at once."""

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
        """The samples of the present step whose gradients autograd has left in the model."""
        self.digest = Digest()
        """Of those samples."""
        self.loss_sum = 0.0
        """The mean loss of those samples, times their number."""
        self._weight = 0.0
        self._owed = False
        """A batch was handed out and its gradients have not come."""

    def hand_out(self, step: int, todo: Ranges, rank: int) -> Generator[Any, None, None]:
        """Yields the first part of what is to be computed; autograd adds up the gradients of the parts."""
        part, rest = split(todo, self._max_share)
        reading = self._loader.read(step, part)
        self.expect(step, rest)
        self._weight = float(count(part))
        self._owed = True
        # Random numbers depend on the seed, the step and the first sample, not on who computes it.
        seed_all(self._buckets.device, self._seed, step, part[0][0])
        self._instruments.faults("compute", rank, step)
        if not self.computed:
            self._instruments.meter.hand_out()
        before = self._buckets.some() if self.computed else None
        yield reading.batch
        if self._owed:
            raise RuntimeError(
                "a batch was taken and run.backward(loss) was not called for it: its samples would be lost"
            )
        if not self._buckets.grew_from(before):
            raise RuntimeError(
                "the gradients of this step were cleared before they were all-reduced: take zero_grad() out of the "
                "loop, the run does that after each step"
            )
        self.digest += Digest.of(reading.indices)
        self.computed = merged((*self.computed, *part))

    def backward(self, loss: Tensor) -> None:
        if self._weight == 0:
            raise RuntimeError("run.backward(loss) belongs inside the loop over the run, once for each batch")
        weighted = loss * (self._weight / self._loader.batch)
        torch.autograd.backward(weighted if self._scaler is None else self._scaler.scale(weighted))
        self.loss_sum += float(loss.detach()) * self._weight
        self._weight = 0.0
        self._owed = False

    def expect(self, step: int, todo: Ranges) -> None:
        """Begins to read what is handed out next."""
        if todo:
            self._loader.expect(step, split(todo, self._max_share)[0])

    def forget(self) -> None:
        """The step is committed, or what was computed of it counts no more."""
        self.computed = ()
        self.digest = Digest()
        self.loss_sum = 0.0
