"""What Google said, as one of our outcomes: by the rules of `rules.py`, otherwise by its code.

GKE reports a stockout in the text of an operation, so phrases matter as much as codes.
"""

from dataclasses import dataclass, replace

from controlplane.clouds.gke.failures import UNANSWERED, CallFailed, Code
from controlplane.clouds.gke.quotas import exceeded
from controlplane.clouds.gke.rules import (
    FORBIDDEN,
    GRANT,
    IN_THE_WAY,
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
    """An operation as it was last seen."""

    name: str
    location: str
    ended: bool
    error: Code | None = None
    message: str = ""
    conditions: tuple[tuple[str, str], ...] = ()
    """GKE's condition codes with their texts, such as `GCE_STOCKOUT`."""
    started_at: float | None = None
    """Unix seconds by Google's clock; None until it is known."""


def call_outcome(failed: CallFailed, project: str) -> Outcome:
    """Of a call that was refused, or that nobody answered."""
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
    """Of a read. What is in the way for a while was tried again before this is asked."""
    outcome = call_outcome(failed, project)
    match outcome:
        case Unreachable() | Refused():
            return outcome
        case Busy(detail) | Throttled(detail):
            return Unreachable(detail)
        case _:
            return Refused(_one_line(failed.message), "check the names in the fleet file")


def creation_outcome(failed: CallFailed, project: str) -> Outcome:
    """Of asking for a cluster: what was not found is not the cluster but something that the plan names."""
    outcome = call_outcome(failed, project)
    if isinstance(outcome, NotFound):
        return Refused(outcome.detail, "correct the network, the subnetwork or the location in the fleet file")
    return outcome


def operation_outcome(report: OperationReport, project: str) -> Outcome:
    """Of an operation that has ended. Without an error it may still tell of machines that did not come."""
    told = dict.fromkeys(text for text in (report.message, *(text for _, text in report.conditions)) if text)
    said = _one_line("; ".join(told))
    codes = tuple(code for code, _ in report.conditions)
    short = first(_SHORTAGES, codes, said, project)
    if short is not None:
        return short
    if report.error is None:
        return Done()
    found = first(_RULES, codes, said, project)
    return found if found is not None else _by_operation_code(report.error, said or report.error)


def group_problem(code: str, message: str, project: str) -> StockedOut | QuotaExceeded | Refused | None:
    """Why an instance group cannot create an instance; None where it may succeed by itself."""
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
            return Refused(f"Google did not accept our credentials: {said}", _SIGN_IN)
        case Code.PERMISSION_DENIED:
            return Refused(said, GRANT)
        case Code.UNIMPLEMENTED:
            return Refused(said, "check that the endpoint is that of the GKE or Compute API")
        case _:
            return Refused(said, "correct what it complains about in the fleet file or in the job")


def _by_operation_code(code: Code, said: str) -> Outcome:
    match code:
        case Code.RESOURCE_EXHAUSTED:
            return StockedOut(said)
        case Code.ALREADY_EXISTS:
            return AlreadyExists(said)
        case Code.NOT_FOUND:
            return NotFound(said)
        case Code.INVALID_ARGUMENT | Code.OUT_OF_RANGE | Code.UNIMPLEMENTED:
            return Refused(said, "correct what it complains about in the fleet file or in the job")
        case Code.PERMISSION_DENIED | Code.UNAUTHENTICATED:
            return Refused(said, GRANT)
        case Code.ABORTED | Code.CANCELLED | Code.UNAVAILABLE:
            return Busy(said)
        case _:
            return Unexplained(said)


_SIGN_IN = (
    "run `gcloud auth application-default login`, or name a service account's key in `cloud.credentials` of the fleet "
    "file; and check this machine's clock"
)


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
"""Quota first: where both are told, machines would not help."""

_RULES = (*IN_THE_WAY, *PERMANENT, *_SHORTAGES, *TEMPORARY, FORBIDDEN)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_DETAIL else f"{line[: LONGEST_DETAIL - 1]}…"
