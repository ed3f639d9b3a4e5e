"""The message that led to what is done now.

The bus sets the cause while it hands a message over. A role loop carries it with the event into the decision and its
effects, slow ones included. What is published meanwhile names it in its envelope.
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
