"""Inbox for events that arrive before their loop exists."""

from collections.abc import Callable
from typing import Generic, TypeVar

from runtime import causes
from runtime.causes import Cause
from runtime.clock import Clock
from runtime.role import EVENTS_AT_MOST, Overrun

Event = TypeVar("Event")


class Inbox(Generic[Event]):
    """Holds events until it is opened; later events go to the loop at once."""

    def __init__(self, at_most: int = EVENTS_AT_MOST) -> None:
        self._waiting: list[tuple[Event, Cause | None]] = []
        self._take: Callable[[Event], None] = self._hold
        self._at_most = at_most
        self._overrun = False

    def post(self, event: Event) -> None:
        self._take(event)

    def open(self, take: Callable[[Event], None]) -> None:
        """Sends all held events to `take`. Raises `Overrun` if too many came."""
        if self._overrun:
            raise Overrun(f"more than {self._at_most} events came before the loop started")
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
    """Returns a callback for `Bus.connect` that posts an event when the connection breaks or is back."""

    def changed(connected: bool) -> None:
        now_s = clock.monotonic_s()
        inbox.post(back(now_s) if connected else lost(now_s))

    return changed
