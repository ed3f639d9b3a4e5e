"""What trainers measure of their own steps, and what the master makes of it.

Only scripts that use the SDK measure anything: it owns the step, and knows when one begins to wait.
"""

from typing import Annotated

from msgspec import Meta, Struct, field

from messages.ids import Counted, Duration

Share = Annotated[float, Meta(ge=0, le=1)]
GradientBytes = Annotated[int, Meta(ge=0, le=10**15)]
Samples = Annotated[float, Meta(ge=0, le=2**53)]


class StepsMeasured(Struct, frozen=True, omit_defaults=True):
    """What the steps of one rank were like of late, but for those that something disturbed.

    Means of one step, not sums since the last report: a report that is lost takes nothing with it.
    """

    steps: Counted = 0
    """How many its trainer has measured, all in all."""
    samples: Samples = 0.0
    """Those that it computed."""
    seconds: Duration = 0.0
    """From sum to sum. What was neither computed nor waited for is the optimizer's update and the reading of data."""
    computed_s: Duration = 0.0
    waited_s: Duration = 0.0
    """In the sum of the gradients: for other ranks, and for the network."""
    gradient_bytes: GradientBytes = 0
    """That one rank sums in a step; 0 where it was not told."""
    global_batch: Counted = 0
    """Samples of all ranks in a step; 0 where it was not told."""
    longest_s: Duration = 0.0
    """The longest of its last steps, with those that something disturbed: an evaluation is part of its step."""


class MeasuredCompute(Struct, frozen=True):
    """Of one rank on one accelerator."""

    seconds_per_sample: Duration
    seconds_per_step: Duration
    """What does not depend on the samples."""


class MeasuredProfile(Struct, frozen=True, omit_defaults=True):
    """What a job's steps need, as its trainers measured it of late."""

    gradient_bytes: GradientBytes
    global_batch: Counted
    step_s: Duration = 0.0
    """0 before enough steps were seen."""
    waiting: Share = 0.0
    """The part of the ranks' time that they wait in the sum."""
    compute: dict[str, MeasuredCompute] = field(default_factory=dict)
    """By accelerator as `tradewind offers` calls it, the newest last; empty where it is not known which one it is."""
