"""How a cloud operation can end. Each is an event for the allocator, never an exception."""

from dataclasses import dataclass
from typing import assert_never

PROJECT = "the project"
"""Scope of a quota that all regions share."""


@dataclass(frozen=True, slots=True)
class Done:
    """As asked."""


@dataclass(frozen=True, slots=True)
class StockedOut:
    """No machines just now. The pool exists and keeps trying by itself until it is resized or deleted."""

    detail: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """It was begun and goes on, but not for us: it had no end in the time that it was given.

    As after a stockout the cloud keeps trying, and until it has ended it may be in the way of others.
    """

    detail: str


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A quota that a request would pass."""

    metric: str
    is_regional: bool
    """False for a quota of the whole project."""
    requested: float
    """By the whole request."""
    available: float
    scope: str = PROJECT
    """Of a quota that is not regional."""


@dataclass(frozen=True, slots=True)
class QuotaExceeded:
    """The project may not have so many."""

    detail: str
    shortfalls: tuple[Shortfall, ...] = ()
    """As far as the cloud says how much is left."""
    in_call: bool = False
    """The request itself was refused, and nothing was changed."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Another operation is in the way, or too many are: try again soon."""

    detail: str


@dataclass(frozen=True, slots=True)
class AlreadyExists:
    detail: str


@dataclass(frozen=True, slots=True)
class NotFound:
    detail: str


@dataclass(frozen=True, slots=True)
class Throttled:
    """Too many requests: try again later."""

    detail: str


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Nobody answered; whether it was done is unknown until the pools are listed again."""

    detail: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Credentials, permissions, a disabled API, a bad request: a person has to act, and `hint` says how."""

    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """A refusal that no rule explains: retry a few times with growing pauses, then treat it as refused."""

    detail: str


@dataclass(frozen=True, slots=True)
class PartlyDone:
    """The cloud refused some of the nodes, and their slots were given up; the operation itself may still run."""

    size: int
    """What the pool aims at now. Nodes that are missing to it were granted and are on their way."""
    reason: StockedOut | QuotaExceeded | Refused


Outcome = (
    Done
    | PartlyDone
    | StockedOut
    | Unfinished
    | QuotaExceeded
    | Busy
    | AlreadyExists
    | NotFound
    | Throttled
    | Unreachable
    | Refused
    | Unexplained
)


def reason_of(outcome: Outcome) -> str:
    """What is in the way, and what a person can do about it; empty if nothing is."""
    match outcome:
        case Done():
            return ""
        case Refused(detail, hint):
            return with_hint(detail, hint)
        case PartlyDone(_, reason):
            return reason_of(reason)
        case (
            StockedOut(detail)
            | Unfinished(detail)
            | QuotaExceeded(detail)
            | Busy(detail)
            | AlreadyExists(detail)
            | NotFound(detail)
            | Throttled(detail)
            | Unreachable(detail)
            | Unexplained(detail)
        ):
            return detail
        case _:
            assert_never(outcome)


def with_hint(detail: str, hint: str) -> str:
    """One sentence: what is wrong, and what a person can do about it."""
    return f"{detail.rstrip('.')}; try: {hint}" if hint else detail
