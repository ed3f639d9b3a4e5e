"""Measurements of steps by trainers, and their summary by the master.

Only scripts with the SDK measure their steps.
"""

from typing import Annotated

from msgspec import Meta, Struct, field

from messages.ids import Counted, Duration

Share = Annotated[float, Meta(ge=0, le=1)]
GradientBytes = Annotated[int, Meta(ge=0, le=10**15)]
Samples = Annotated[float, Meta(ge=0, le=2**53)]


class StepsMeasured(Struct, frozen=True, omit_defaults=True):
    """Means of the recent steps of one rank, without disturbed steps.

    They are means of one step, not totals since the last report, so a lost report loses nothing.
    """

    steps: Counted = 0
    """Number of steps that the trainer has measured so far."""
    samples: Samples = 0.0
    """Samples that the rank computed."""
    seconds: Duration = 0.0
    """From all-reduce to all-reduce. The rest, beside computing and waiting, is the optimizer and reading data."""
    computed_s: Duration = 0.0
    waited_s: Duration = 0.0
    """Time in the all-reduce of the gradients: for other ranks, and for the network."""
    gradient_bytes: GradientBytes = 0
    """Bytes that one rank all-reduces in a step; 0 if unknown."""
    global_batch: Counted = 0
    """Samples of all ranks in a step; 0 if unknown."""
    longest_s: Duration = 0.0
    """The longest recent step, including disturbed ones: an evaluation is part of its step."""


class MeasuredCompute(Struct, frozen=True):
    """The computation of one rank on one accelerator."""

    seconds_per_sample: Duration
    seconds_per_step: Duration
    """The time that does not depend on the samples."""


class MeasuredProfile(Struct, frozen=True, omit_defaults=True):
    """What a job's steps need, as its trainers measured recently."""

    gradient_bytes: GradientBytes
    global_batch: Counted
    step_s: Duration = 0.0
    """Seconds of a step; 0 before enough steps were measured."""
    waiting: Share = 0.0
    """The part of the ranks' time in which they wait in the all-reduce."""
    compute: dict[str, MeasuredCompute] = field(default_factory=dict)
    """By accelerator as in `tradewind offers`, the newest last; empty if the accelerator is unknown."""
