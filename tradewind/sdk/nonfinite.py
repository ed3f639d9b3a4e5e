"""Steps whose loss or gradient is not finite: NaN or infinite.

Each rank says in the step's control words whether its own loss or gradient is such a one. So all ranks know whose it
was, and decide alike for the same step: also one that gets the all-reduce of that step later, or replays it.

A gradient scaler looks at gradients itself and skips what overflows: that is how it finds its scale, and no fault.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, get_args

from tradewind.sdk.certificate import Certificate
from tradewind.sdk.control_words import Agreed
from tradewind.sdk.diagnostics import say
from tradewind.sdk.errors import NonfiniteStep

OnNonfinite = Literal["stop", "skip", "warn"]

SKIPPED_AT_MOST: Final = 50
"""Steps in a row that may be skipped: a training in which nothing is applied any more does not recover by itself."""
_WARN_EVERY_S: Final = 30.0
_NAMED_AT_MOST: Final = 8


class Nonfinite:
    def __init__(
        self,
        choice: OnNonfinite,
        certificate: Certificate,
        *,
        scaled: bool,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`scaled`: an enabled gradient scaler decides about gradients."""
        if choice not in get_args(OnNonfinite):
            raise ValueError(f"on_nonfinite is {choice!r}, but it must be 'stop', 'skip' or 'warn'")
        self._choice = choice
        self._certificate = certificate
        self.scaled = scaled
        self._clock_s = clock_s
        self._warned_s = float("-inf")

    def admits(self, step: int, agreed: Agreed) -> bool:
        """Whether the step is applied. Raises NonfiniteStep if the run ends with it."""
        bad = not agreed.is_finite
        self._certificate.nonfinite += bad
        if self.scaled:
            return True
        if bad and self._choice == "stop":
            raise NonfiniteStep(
                f"step {step}: {whose(agreed)} not finite (NaN or infinite). The step was not applied, and the run "
                "ends on all ranks. Look at the samples of that step, lower the learning rate or clip gradients "
                "(clip_norm=); on_nonfinite='skip' leaves such steps out"
            )
        skips = bad and self._choice == "skip"
        self._count(step, skipped=skips)
        return not skips

    def scaler_stepped(self, step: int, *, skipped: bool) -> None:
        """What the scaler has done with a step that was applied."""
        self._count(step, skipped=skipped)

    def warn(self, step: int, agreed: Agreed) -> None:
        """At most every half minute, by one rank."""
        now_s = self._clock_s()
        if agreed.is_finite or self.scaled or now_s - self._warned_s < _WARN_EVERY_S:
            return
        self._warned_s = now_s
        what = "it was skipped on all ranks" if self._choice == "skip" else "it was applied all the same"
        so_far = f"such steps so far: {self._certificate.nonfinite:,}"
        say(f"step {step}: {whose(agreed)} not finite (NaN or infinite); {what} (on_nonfinite, {so_far})")

    def _count(self, step: int, *, skipped: bool) -> None:
        certificate = self._certificate
        certificate.skipped += skipped
        certificate.skipped_in_a_row = certificate.skipped_in_a_row + 1 if skipped else 0
        if certificate.skipped_in_a_row >= SKIPPED_AT_MOST:
            raise NonfiniteStep(
                f"step {step}: the last {SKIPPED_AT_MOST} steps were all skipped, because their gradients are not "
                "finite (NaN or infinite): nothing is trained any more, and the run ends on all ranks. Resume from a "
                "checkpoint before them with a lower learning rate, or look for what makes the loss NaN"
            )


def whose(agreed: Agreed) -> str:
    """Ranks with such a loss are not named once more for the gradient that it makes."""
    gradients = [rank for rank in agreed.bad_gradient if rank not in agreed.bad_loss]
    named = (("loss", agreed.bad_loss), ("gradient", gradients))
    found = [f"the {what} of {_ranks(ranks)}" for what, ranks in named if ranks]
    return " and ".join(found) + (" is" if len(found) == 1 else " are")


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_NAMED_AT_MOST]))
    more = f" and {len(ranks) - _NAMED_AT_MOST} more" if len(ranks) > _NAMED_AT_MOST else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
