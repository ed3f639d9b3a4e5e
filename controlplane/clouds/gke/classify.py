"""Translation of Google's answers into outcomes: by the rules of `rules.py`, otherwise by the error code.

GKE reports a stockout in the text of an operation, so phrases matter as much as codes.
"""

from dataclasses import dataclass, replace

from controlplane.clouds.gke.failures import UNANSWERED, CallFailed, Code
from controlplane.clouds.gke.quotas import exceeded
from controlplane.clouds.gke.rules import (
    BLOCKED,
    FORBIDDEN,
    GRANT,
    PERMANENT,
    STOCKOUT,
    TEMPORARY,
    first,
    rule,
)
from controlplane.clouds.outcomes import (
    AlreadyExists,
    Busy,
    Done,
    NotFound,
    Outcome,
    QuotaExceeded,
    Refused,
    StockedOut,
    Throttled,
    Unexplained,
    Unreachable,
)

LONGEST_DETAIL = 1200


@dataclass(frozen=True, slots=True)
class OperationReport:
    """The newest known state of an operation."""

    name: str
    location: str
    ended: bool
    error: Code | None = None
    message: str = ""
    conditions: tuple[tuple[str, str], ...] = ()
    """GKE's condition codes with their texts, such as `GCE_STOCKOUT`."""
    started_at: float | None = None
    """Unix seconds by Google's clock; None if unknown."""


def call_outcome(failed: CallFailed, project: str) -> Outcome:
    """The outcome of a call that was refused or not answered."""
    said = _one_line(failed.message)
    if failed.hint:
        return Refused(said, failed.hint)
    if failed.code in UNANSWERED:
        return Unreachable(said)
    found = first(_RULES, failed.reasons, said, project)
    if isinstance(found, QuotaExceeded):
        return replace(found, in_call=True)
    return found if found is not None else _by_call_code(failed.code, said)


def read_problem(failed: CallFailed, project: str) -> Unreachable | Refused:
    """The outcome of a failed read. The caller has already retried temporary errors."""
    outcome = call_outcome(failed, project)
    match outcome:
        case Unreachable() | Refused():
            return outcome
        case Busy(detail) | Throttled(detail):
            return Unreachable(detail)
        case _:
            return Refused(_one_line(failed.message), "check the names in the fleet file")


def creation_outcome(failed: CallFailed, project: str) -> Outcome:
    """The outcome of a failed request for a cluster. `NotFound` concerns a resource that the plan names."""
    outcome = call_outcome(failed, project)
    if isinstance(outcome, NotFound):
        return Refused(outcome.detail, "correct the network, the subnetwork or the location in the fleet file")
    return outcome


def operation_outcome(report: OperationReport, project: str) -> Outcome:
    """The outcome of an operation that has ended. One without an error may still report missing machines."""
    reported = dict.fromkeys(text for text in (report.message, *(text for _, text in report.conditions)) if text)
    said = _one_line("; ".join(reported))
    codes = tuple(code for code, _ in report.conditions)
    short = first(_SHORTAGES, codes, said, project)
    if short is not None:
        return short
    if report.error is None:
        return Done()
    found = first(_RULES, codes, said, project)
    return found if found is not None else _by_operation_code(report.error, said or report.error)


def group_problem(code: str, message: str, project: str) -> StockedOut | QuotaExceeded | Refused | None:
    """The reason why an instance group cannot create an instance; None if a retry may succeed."""
    outcome = first((*PERMANENT, *_SHORTAGES, FORBIDDEN), (code,), _one_line(message), project)
    return outcome if isinstance(outcome, StockedOut | QuotaExceeded | Refused) else None


def _by_call_code(code: Code, said: str) -> Outcome:
    match code:
        case Code.ALREADY_EXISTS:
            return AlreadyExists(said)
        case Code.NOT_FOUND:
            return NotFound(said)
        case Code.RESOURCE_EXHAUSTED:
            return Throttled(said)
        case Code.ABORTED:
            return Busy(said)
        case Code.FAILED_PRECONDITION:
            return Unexplained(said)
        case Code.UNAUTHENTICATED:
            return Refused(f"Google rejected the credentials: {said}", _SIGN_IN)
        case Code.PERMISSION_DENIED:
            return Refused(said, GRANT)
        case Code.UNIMPLEMENTED:
            return Refused(said, "check that the endpoint belongs to the GKE or Compute API")
        case _:
            return Refused(said, _CORRECT_REQUEST)


def _by_operation_code(code: Code, said: str) -> Outcome:
    match code:
        case Code.RESOURCE_EXHAUSTED:
            return StockedOut(said)
        case Code.ALREADY_EXISTS:
            return AlreadyExists(said)
        case Code.NOT_FOUND:
            return NotFound(said)
        case Code.INVALID_ARGUMENT | Code.OUT_OF_RANGE | Code.UNIMPLEMENTED:
            return Refused(said, _CORRECT_REQUEST)
        case Code.PERMISSION_DENIED | Code.UNAUTHENTICATED:
            return Refused(said, GRANT)
        case Code.ABORTED | Code.CANCELLED | Code.UNAVAILABLE:
            return Busy(said)
        case _:
            return Unexplained(said)


_SIGN_IN = (
    "run `gcloud auth application-default login`, or set `cloud.credentials` in the fleet file to a service account's "
    "key; and check this machine's clock"
)
_CORRECT_REQUEST = "correct the value that the error names in the fleet file or in the job"

_SHORTAGES = (
    rule(
        exceeded,
        "GCE_QUOTA_EXCEEDED",
        "QUOTA_EXCEEDED",
        "quotaExceeded",
        phrase=r"QUOTA_EXCEEDED|Quota '[^']+' exceeded|Insufficient \w* ?quota",
    ),
    STOCKOUT,
)
"""The quota comes first: if Google reports both, available machines would not help."""

_RULES = (*BLOCKED, *PERMANENT, *_SHORTAGES, *TEMPORARY, FORBIDDEN)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_DETAIL else f"{line[: LONGEST_DETAIL - 1]}…"
