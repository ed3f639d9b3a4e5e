"""The calls that the cloud received, with their times, for tests and measurements."""

from collections import deque
from dataclasses import dataclass, field

from msgspec import Struct

from runtime.clock import Clock

MAX_CALLS = 20_000


class Call(Struct, frozen=True):
    number: int
    """Grows by one with each call."""
    at_s: float
    """Unix seconds."""
    monotonic_s: float
    """Seconds of this machine's monotonic clock, which its other processes can compare."""
    api: str
    """`gke`, `compute`, `token` or `control`."""
    method: str
    target: str
    detail: str
    outcome: str
    """`OK`, or the code of the refusal; empty until the call ends."""


@dataclass(slots=True)
class CallLog:
    clock: Clock
    _calls: deque[Call] = field(default_factory=lambda: deque(maxlen=MAX_CALLS))
    _last: int = 0

    def arrived(self, api: str, method: str, target: str, detail: str = "") -> int:
        self._last += 1
        now = self.clock.wall_s(), self.clock.monotonic_s()
        self._calls.append(Call(self._last, *now, api, method, target, detail, ""))
        return self._last

    def ended(self, number: int, outcome: str) -> None:
        index = number - self._last - 1
        if -len(self._calls) <= index:
            call = self._calls[index]
            self._calls[index] = Call(
                call.number, call.at_s, call.monotonic_s, call.api, call.method, call.target, call.detail, outcome
            )

    def since(self, number: int, api: str = "", method: str = "") -> list[Call]:
        """The calls after that number, oldest first."""
        return [
            call
            for call in self._calls
            if call.number > number and api in ("", call.api) and method in ("", call.method)
        ]
