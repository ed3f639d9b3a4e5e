"""Events that come before the loop which takes them exists."""

from collections.abc import Callable
from typing import Generic, TypeVar

from runtime import causes
from runtime.causes import Cause
from runtime.clock import Clock
from runtime.role import EVENTS_AT_MOST, Overrun

Event = TypeVar("Event")


class Inbox(Generic[Event]):
    """Holds events until it is opened; from then on it passes them on at once."""

    def __init__(self, at_most: int = EVENTS_AT_MOST) -> None:
        self._waiting: list[tuple[Event, Cause | None]] = []
        self._take: Callable[[Event], None] = self._hold
        self._at_most = at_most
        self._overrun = False

    def post(self, event: Event) -> None:
        self._take(event)

    def open(self, take: Callable[[Event], None]) -> None:
        """Raises `Overrun` where more came than it holds."""
        if self._overrun:
            raise Overrun(f"more than {self._at_most} events came before anybody could take them")
        for event, cause in self._waiting:
            with causes.caused_by(cause):
                take(event)
        self._waiting.clear()
        self._take = take

    def _hold(self, event: Event) -> None:
        if len(self._waiting) < self._at_most:
            self._waiting.append((event, causes.current()))
        else:
            self._overrun = True


def posting_bus_changes(
    inbox: Inbox[Event], clock: Clock, back: Callable[[float], Event], lost: Callable[[float], Event]
) -> Callable[[bool], None]:
    """For `Bus.connect`: posts an event whenever the connection to the bus breaks or is back."""

    def changed(connected: bool) -> None:
        now_s = clock.monotonic_s()
        inbox.post(back(now_s) if connected else lost(now_s))

    return changed
