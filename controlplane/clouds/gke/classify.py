"""What Google said, as one of our outcomes: tables of its reasons, codes and phrases, the first that fits wins.

A stockout is told nowhere but in the text of an operation that has ended, so phrases matter as much as codes.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from controlplane.clouds.gke.failures import UNANSWERED, CallFailed, Code
from controlplane.clouds.gke.quotas import exceeded
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


@dataclass(frozen=True, slots=True)
class _Rule:
    outcome: Callable[[str, str], Outcome]
    """Of the project and what was said."""
    reasons: frozenset[str] = frozenset()
    phrase: re.Pattern[str] | None = None

    def fits(self, reasons: Sequence[str], said: str) -> bool:
        return any(reason in self.reasons for reason in reasons) or bool(self.phrase and self.phrase.search(said))


def call_outcome(failed: CallFailed, project: str) -> Outcome:
    """Of a call that was refused, or that nobody answered."""
    said = _one_line(failed.message)
    if failed.hint:
        return Refused(said, failed.hint)
    if failed.code in UNANSWERED:
        return Unreachable(said)
    found = _first(_CALL_RULES, (failed.reason,), said, project)
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
    short = _first(_SHORTAGES, codes, said, project)
    if short is not None:
        return short
    if report.error is None:
        return Done()
    found = _first(_OPERATION_RULES, codes, said, project)
    return found if found is not None else _by_operation_code(report.error, said or report.error)


def _first(rules: Sequence[_Rule], reasons: Sequence[str], said: str, project: str) -> Outcome | None:
    return next((rule.outcome(project, said) for rule in rules if rule.fits(reasons, said)), None)


def _by_call_code(code: Code, said: str) -> Outcome:
    match code:
        case Code.ALREADY_EXISTS:
            return AlreadyExists(said)
        case Code.NOT_FOUND:
            return NotFound(said)
        case Code.RESOURCE_EXHAUSTED:
            return Throttled(said)
        case Code.FAILED_PRECONDITION | Code.ABORTED:
            return Busy(said)
        case Code.UNAUTHENTICATED:
            return Refused(f"Google did not accept our credentials: {said}", _SIGN_IN)
        case Code.PERMISSION_DENIED:
            return Refused(said, _GRANT)
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
            return Refused(said, _GRANT)
        case _:
            return Busy(said)


_SIGN_IN = (
    "run `gcloud auth application-default login`, or name a service account's key in `cloud.credentials` of the fleet "
    "file; and check this machine's clock"
)
_GRANT = (
    "grant the account roles/container.admin, roles/compute.instanceAdmin.v1 and roles/iam.serviceAccountUser in the "
    "project"
)


def _stockout(_project: str, said: str) -> Outcome:
    return StockedOut(_gist(_STOCKOUT_GIST, said))


def _gist(pattern: re.Pattern[str], said: str) -> str:
    """GKE wraps what Compute said in a history of its own: the one sentence that matters, where it is found."""
    found = pattern.search(said)
    return found[0] if found is not None else said


_STOCKOUT_GIST = re.compile(r"The zone '[^']+' does not have enough resources[^.;]*\.?", re.IGNORECASE)


def _api_disabled(project: str, said: str) -> Outcome:
    return Refused(
        f"An API that we need is disabled in the project {project}: {said.partition('. ')[0]}",
        f"run `gcloud services enable container.googleapis.com compute.googleapis.com --project={project}` "
        "and wait a few minutes",
    )


def _no_quota_project(project: str, said: str) -> Outcome:
    return Refused(said, f"run `gcloud auth application-default set-quota-project {project}`")


def _quota_project_denied(_project: str, said: str) -> Outcome:
    return Refused(
        said,
        "grant the account roles/serviceusage.serviceUsageConsumer in that project, or choose another with "
        "`gcloud auth application-default set-quota-project`",
    )


def _no_project(project: str, said: str) -> Outcome:
    return Refused(
        f"There is no project {project}, or our account may not see it: {said}",
        "correct `cloud.project` in the fleet file (the project's id, not its name)",
    )


def _no_billing(project: str, said: str) -> Outcome:
    return Refused(
        f"The project {project} has no billing account: {said}",
        f"link one at https://console.cloud.google.com/billing/linkedaccount?project={project}",
    )


def _no_location(_project: str, said: str) -> Outcome:
    return Refused(said, "correct the cluster's `location` in the fleet file")


def _forbidden(_project: str, said: str) -> Outcome:
    return Refused(said, _GRANT)


def _no_addresses(_project: str, said: str) -> Outcome:
    return Refused(said, "give the cluster a larger subnetwork or pod range")


def _no_service_account(_project: str, said: str) -> Outcome:
    return Refused(said, "correct `service_account` in the fleet file, or restore the project's GKE service account")


def _rule(outcome: Callable[[str, str], Outcome], *reasons: str, phrase: str = "") -> _Rule:
    return _Rule(outcome, frozenset(reasons), re.compile(phrase, re.IGNORECASE) if phrase else None)


_SHORTAGES = (
    _rule(exceeded, "GCE_QUOTA_EXCEEDED", phrase=r"QUOTA_EXCEEDED|Quota '[^']+' exceeded|Insufficient \w* ?quota"),
    _rule(
        _stockout,
        "GCE_STOCKOUT",
        phrase=r"GCE_STOCKOUT|RESOURCE_POOL_EXHAUSTED|does not have enough resources available",
    ),
)
"""Quota first: where both are told, machines would not help."""

_CALL_RULES = (
    _rule(
        lambda _, said: Busy(said),
        "CLUSTER_ALREADY_HAS_OPERATION",
        phrase=r"incompatible operation|concurrent operations|too many operations",
    ),
    _rule(
        lambda _, said: Throttled(said),
        "RATE_LIMIT_EXCEEDED",
        "rateLimitExceeded",
        "userRateLimitExceeded",
        phrase=r"quota exceeded for quota metric|rate limit exceeded|too many requests",
    ),
    _rule(_no_quota_project, phrase=r"requires a quota project"),
    _rule(_quota_project_denied, "USER_PROJECT_DENIED", phrase=r"permission to use project"),
    _rule(_api_disabled, "SERVICE_DISABLED", "accessNotConfigured", phrase=r"has not been used in project .* before"),
    _rule(_no_billing, "BILLING_DISABLED", "UREQ_PROJECT_BILLING_NOT_FOUND", phrase=r"billing .*(disabled|enabled)"),
    _rule(
        _no_project,
        "CONSUMER_INVALID",
        "RESOURCE_PROJECT_INVALID",
        phrase=r"project '?[^ ']+'? (was )?not found|denied on resource project|unknown project",
    ),
    _rule(_no_location, "LOCATION_POLICY_VIOLATED", phrase=r"denied on 'locations/|invalid zone|invalid location"),
    *_SHORTAGES,
    _rule(_forbidden, "IAM_PERMISSION_DENIED", "forbidden"),
)

_OPERATION_RULES = (
    _rule(_no_addresses, phrase=r"IP_SPACE_EXHAUSTED|no free IP|insufficient free addresses"),
    _rule(_no_service_account, "GKE_SERVICE_ACCOUNT_DELETED", phrase=r"service account .*(does not exist|not found)"),
    *_CALL_RULES,
)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_DETAIL else f"{line[: LONGEST_DETAIL - 1]}…"
