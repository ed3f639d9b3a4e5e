"""What a pure core returns for an event: its next state, what to do, and why."""

from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State")
Effect = TypeVar("Effect")


@dataclass(frozen=True, slots=True)
class Decision(Generic[State, Effect]):
    state: State
    effects: tuple[Effect, ...] = ()
    why: str = ""
    wake_at_s: float | None = None
    """When, on the monotonic clock, time alone could change the decision."""
