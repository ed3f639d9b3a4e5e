"""Clocks that callers pass in. Cores never read a clock."""

import time
from typing import Protocol


class Clock(Protocol):
    def monotonic_s(self) -> float:
        """Returns monotonic seconds, for liveness and deadlines of this process."""

    def wall_s(self) -> float:
        """Returns Unix seconds, for the ledger and for people."""


class SystemClock:
    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_s(self) -> float:
        return time.time()
