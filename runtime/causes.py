"""The message that caused the current work.

The bus sets the cause while it calls a handler. A role loop stores it with the event and sets it again for the effects
of the decision, including slow ones. Messages that are published meanwhile name it in their envelopes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    message_id: str
    text: str
    """Kind and sender of the message, for people."""


_current: ContextVar[Cause | None] = ContextVar("cause", default=None)


def current() -> Cause | None:
    return _current.get()


@contextmanager
def caused_by(cause: Cause | None) -> Iterator[None]:
    token = _current.set(cause)
    try:
        yield
    finally:
        _current.reset(token)
