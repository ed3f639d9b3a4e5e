"""The result of a pure core: its next state, the effects, and why."""

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
    """Monotonic time at which the decision may change without an event."""
