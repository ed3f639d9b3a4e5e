"""Reports of steps, from trainers through the host or directly to the agent."""

from dataclasses import dataclass

from tradewind.protocol.lines import Count, UnixSeconds, reader


@dataclass(frozen=True, slots=True)
class StepReport:
    step: Count
    loss: float | None = None
    """A finite number; None if the script reported none or `nonfinite` is true."""
    samples: Count | None = None
    at: UnixSeconds = 0.0
    nonfinite: bool = False
    """The loss is NaN or infinite, which JSON cannot express."""


read_report = reader(StepReport)


@dataclass(frozen=True, slots=True)
class StepsCounted:
    """Counts of steps of the whole run so far."""

    nonfinite: Count = 0
    """Steps in which some rank's loss or gradient was NaN or infinite."""
    skipped: Count = 0
    """Steps that were not applied because they were not finite, or that a gradient scaler skipped."""
