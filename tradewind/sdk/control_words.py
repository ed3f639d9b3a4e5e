"""The control words: numbers that ranks append to the gradients and that the same all-reduce adds up.

    t, t², samples, step (in two parts), loss, digest × 4, the flags of each rank

`t` names the world that a rank is ready for: its generation minus the current one, 0 for none. All W ranks are ready
for the same world exactly if Σt > 0 and (Σt)² = W·Σt² (Cauchy–Schwarz), so all ranks switch after the same step
without another message. Every number is whole and every sum over up to 1024 ranks stays below 2²⁴ (if the global batch
does), so float32 adds them without loss; only the loss is rounded.

The flags of a rank are bits of one small number, in a place that no other rank writes to. A loss that is not finite
sets a flag and adds 0 to the loss: so all ranks know which rank had it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from tradewind.sdk.certificate import LANES, Digest

if TYPE_CHECKING:
    from torch import Tensor

_HEAD: Final = 6
_FLAGS: Final = _HEAD + LANES
_FARTHEST: Final = 64
"""The largest `t`. A rank does not declare a world further ahead; the trainers then need a halt to enter it."""
_LARGEST_LOSS: Final = 1e35
"""The largest loss of one rank: the sum of 1024 larger ones could overflow float32."""
_STEP_PART: Final = 1 << 24
_EXACT: Final = ("torch.float32", "torch.float64")

_ACTIVE: Final = 1
_BAD_LOSS: Final = 2
_BAD_GRADIENT: Final = 4
_STOPS: Final = 8
_OVER: Final = 16


def size(world_size: int) -> int:
    return _FLAGS + world_size


RANKS: Final = 1024
MOST: Final = size(RANKS)
"""The size for the largest world, so that the layout of the buffer depends on the model only."""


@dataclass(frozen=True, slots=True)
class Own:
    """The control words of one rank in a step."""

    ready: int
    """The generation that it is ready for, minus the current one; 0 for none."""
    digest: Digest
    """Digest of the samples behind its gradient."""
    loss_sum: float
    """The mean loss of those samples, times their number."""
    active: bool
    step: int | None
    """The step number; None on all ranks except the lowest active one."""
    stops: bool = False
    """The script requests the end of the run after this step."""
    over: bool = False
    """All steps are done; this all-reduce is no step."""


@dataclass(frozen=True, slots=True)
class Agreed:
    """The control words of all ranks, added up: the same on every rank that has them."""

    ready_sum: int
    ready_squares: int
    step: int
    digest: Digest
    loss_sum: float
    active: tuple[bool, ...]
    bad_loss: tuple[int, ...] = ()
    """The ranks whose loss is not finite."""
    bad_gradient: tuple[int, ...] = ()
    """The ranks whose own gradient is not finite."""
    stops: bool = False
    """The run ends after this step, because a rank requests it."""
    over: bool = False
    """All steps are done; this all-reduce was no step."""

    @property
    def is_finite(self) -> bool:
        return not self.bad_loss and not self.bad_gradient

    @property
    def samples(self) -> int:
        return self.digest.count

    @property
    def loss(self) -> float | None:
        """The mean over the samples of the step; NaN if the loss of any rank is not finite."""
        if self.bad_loss:
            return math.nan
        return self.loss_sum / self.samples if self.samples else None

    @property
    def ends_after(self) -> int | None:
        """The number of steps after which the run is over; None if no rank requests its end."""
        if self.over:
            return self.step
        return self.step + 1 if self.stops else None

    def ready_generation(self, current: int, world_size: int) -> int | None:
        """The generation that all ranks can switch to now."""
        if self.ready_sum <= 0 or self.ready_sum**2 != world_size * self.ready_squares:
            return None
        return current + self.ready_sum // world_size


def encode(own: Own, rank: int) -> list[float]:
    """The control words of this rank up to its own flags; the flags of higher ranks are 0."""
    ready = own.ready if 0 < own.ready <= _FARTHEST else 0
    high, low = divmod(own.step or 0, _STEP_PART)
    has_loss = abs(own.loss_sum) <= _LARGEST_LOSS  # False for NaN
    loss_sum = own.loss_sum if has_loss else 0.0
    flags = _ACTIVE * own.active + _BAD_LOSS * (not has_loss) + _STOPS * own.stops + _OVER * own.over
    head = (ready, ready * ready, own.digest.count, high, low, loss_sum)
    return [*head, *own.digest.lanes(), *(0.0,) * rank, float(flags)]


def decode(summed: Sequence[float]) -> Agreed:
    """Decodes the sum of the control words of all ranks."""
    ready_sum, ready_squares, samples, high, low, loss_sum = summed[:_HEAD]
    flags = [int(each) for each in summed[_FLAGS:]]
    found = reduce(or_, flags, 0)
    return Agreed(
        ready_sum=int(ready_sum),
        ready_squares=int(ready_squares),
        step=int(high) * _STEP_PART + int(low),
        digest=Digest.from_lanes(int(samples), summed[_HEAD:_FLAGS]),
        loss_sum=loss_sum,
        active=tuple([each & _ACTIVE > 0 for each in flags]),
        bad_loss=_ranks(flags, _BAD_LOSS) if found & _BAD_LOSS else (),
        bad_gradient=_ranks(flags, _BAD_GRADIENT) if found & _BAD_GRADIENT else (),
        stops=found & _STOPS > 0,
        over=found & _OVER > 0,
    )


def write(words: "Tensor", own: Own, rank: int, bad_gradient: "Tensor | bool" = False) -> None:
    """Writes the control words of this rank. `bad_gradient` is True if its gradient is not finite."""
    if str(words.dtype) not in _EXACT:
        raise ValueError(f"control words must be float32 or float64, not {words.dtype}")
    encoded = encode(own, rank)
    if bad_gradient is True:
        encoded[-1] += _BAD_GRADIENT
    words.zero_()
    words[: len(encoded)] = words.new_tensor(encoded, device="cpu")
    if not isinstance(bad_gradient, bool):
        words[_FLAGS + rank].add_(bad_gradient, alpha=_BAD_GRADIENT)


def read(words: "Tensor", world_size: int) -> Agreed:
    return decode(words[: size(world_size)].tolist())


def _ranks(flags: list[int], flag: int) -> tuple[int, ...]:
    return tuple(rank for rank, each in enumerate(flags) if each & flag)
