"""Steps whose loss or gradient is not finite: NaN or infinite.

Each rank declares in the step's control words that its own loss or gradient is not finite. So all ranks know which
ranks it was, and decide the same for the step, even if they get or replay it later.

A gradient scaler checks gradients itself and skips steps that overflow: so it finds its scale, and it is no error.
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
"""Number of consecutive skipped steps that ends the run: it does not recover by itself."""
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
        """`scaled` is True if an enabled gradient scaler decides about gradients."""
        if choice not in get_args(OnNonfinite):
            raise ValueError(f"on_nonfinite must be 'stop', 'skip' or 'warn', not {choice!r}")
        self._choice = choice
        self._certificate = certificate
        self.scaled = scaled
        self._clock_s = clock_s
        self._warned_s = float("-inf")

    def admits(self, step: int, agreed: Agreed) -> bool:
        """True if the step is to be applied. Raises NonfiniteStep if it ends the run."""
        bad = not agreed.is_finite
        self._certificate.nonfinite += bad
        if self.scaled:
            return True
        if bad and self._choice == "stop":
            raise NonfiniteStep(
                f"step {step}: {whose(agreed)} not finite (NaN or infinite). The step was not applied, and the run "
                "ends on all ranks. Check the samples of that step, lower the learning rate or clip gradients "
                "(clip_norm=); on_nonfinite='skip' skips such steps"
            )
        skips = bad and self._choice == "skip"
        self._count(step, skipped=skips)
        return not skips

    def scaler_stepped(self, step: int, *, skipped: bool) -> None:
        """Counts a step that the scaler applied or skipped."""
        self._count(step, skipped=skipped)

    def warn(self, step: int, agreed: Agreed) -> None:
        """Prints a warning about the step, at most every 30 s. One rank calls it."""
        now_s = self._clock_s()
        if agreed.is_finite or self.scaled or now_s - self._warned_s < _WARN_EVERY_S:
            return
        self._warned_s = now_s
        say(warning(step, agreed, self._choice, self._certificate.nonfinite))

    def _count(self, step: int, *, skipped: bool) -> None:
        certificate = self._certificate
        certificate.skipped += skipped
        certificate.skipped_in_a_row = certificate.skipped_in_a_row + 1 if skipped else 0
        if certificate.skipped_in_a_row >= SKIPPED_AT_MOST:
            raise NonfiniteStep(
                f"step {step}: the last {SKIPPED_AT_MOST} steps were all skipped, because their gradients are not "
                "finite (NaN or infinite): the model does not learn any more, and the run ends on all ranks. Resume "
                "from a checkpoint before them with a lower learning rate, or find out what makes the loss NaN"
            )


def warning(step: int, agreed: Agreed, choice: OnNonfinite, so_far: int) -> str:
    """The warning about a step. `so_far` is the number of such steps in the run."""
    what = "it was skipped on all ranks" if choice == "skip" else "it was applied"
    return (
        f"step {step}: {whose(agreed)} not finite (NaN or infinite); {what} "
        f"(on_nonfinite={choice!r}, such steps so far: {so_far:,})"
    )


def whose(agreed: Agreed) -> str:
    """Names the ranks with a loss or gradient that is not finite, each rank once."""
    gradients = [rank for rank in agreed.bad_gradient if rank not in agreed.bad_loss]
    named = (("loss", agreed.bad_loss), ("gradient", gradients))
    found = [f"the {what} of {_ranks(ranks)}" for what, ranks in named if ranks]
    return " and ".join(found) + (" is" if len(found) == 1 else " are")


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_NAMED_AT_MOST]))
    more = f" and {len(ranks) - _NAMED_AT_MOST} more" if len(ranks) > _NAMED_AT_MOST else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
