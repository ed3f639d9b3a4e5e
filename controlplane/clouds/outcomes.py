"""The possible results of a cloud operation. Each is an event for the allocator, never an exception."""

from dataclasses import dataclass
from typing import assert_never

PROJECT = "the project"
"""Scope of a quota that all regions share."""


@dataclass(frozen=True, slots=True)
class Done:
    """The cloud did what was requested."""


@dataclass(frozen=True, slots=True)
class StockedOut:
    """The cloud has no machines now. The pool exists and retries by itself until it is resized or deleted."""

    detail: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The operation did not end within its timeout and still runs.

    The cloud retries it by itself, as after a stockout. Until it ends, it may block other operations.
    """

    detail: str


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A quota that a request would exceed."""

    metric: str
    is_regional: bool
    """False for a quota of the whole project."""
    requested: float
    """The amount that the whole request needs."""
    available: float
    scope: str = PROJECT
    """The scope of a quota that is not regional."""


@dataclass(frozen=True, slots=True)
class QuotaExceeded:
    """The request exceeds a quota of the project."""

    detail: str
    shortfalls: tuple[Shortfall, ...] = ()
    """The quotas for which the cloud reports what is left."""
    in_call: bool = False
    """The cloud refused the request itself and changed nothing."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Another operation, or too many operations, block this one: retry soon."""

    detail: str


@dataclass(frozen=True, slots=True)
class AlreadyExists:
    detail: str


@dataclass(frozen=True, slots=True)
class NotFound:
    detail: str


@dataclass(frozen=True, slots=True)
class Throttled:
    """Too many requests: retry later."""

    detail: str


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The cloud did not answer. The next listing of the pools shows whether it performed the request."""

    detail: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Wrong credentials, permissions or request, or a disabled API: a person must act; `hint` explains how."""

    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """An error that no rule explains: retry a few times with growing pauses, then treat it as refused."""

    detail: str


@dataclass(frozen=True, slots=True)
class PartlyDone:
    """The cloud refused some of the nodes, and their slots were removed. The operation itself may still run."""

    size: int
    """The pool's target now. Its missing nodes were granted and will start."""
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
    """Why an operation failed and what a person can do; empty if it succeeded."""
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
    """Join what is wrong and what a person can do."""
    return f"{detail.rstrip('.')}; try: {hint}" if hint else detail
