"""Tables of the constants and phrases with which Google refuses. The first rule that fits decides.

The constants come from `google.rpc.ErrorInfo`, Compute's older errors (with a small first letter), the errors of
instance groups, and GKE's status conditions.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.clouds.outcomes import Busy, Outcome, Refused, StockedOut, Throttled

GRANT = (
    "grant the account roles/container.admin, roles/compute.instanceAdmin.v1 and roles/iam.serviceAccountUser in the "
    "project"
)

Make = Callable[[str, str], Outcome]
"""A function from the project and Google's message to an outcome."""


@dataclass(frozen=True, slots=True)
class Rule:
    outcome: Make
    reasons: frozenset[str] = frozenset()
    phrase: re.Pattern[str] | None = None

    def fits(self, reasons: Sequence[str], said: str) -> bool:
        return any(reason in self.reasons for reason in reasons) or bool(self.phrase and self.phrase.search(said))


def rule(outcome: Make, *reasons: str, phrase: str = "") -> Rule:
    return Rule(outcome, frozenset(reasons), re.compile(phrase, re.IGNORECASE) if phrase else None)


def first(rules: Sequence[Rule], reasons: Sequence[str], said: str, project: str) -> Outcome | None:
    return next((each.outcome(project, said) for each in rules if each.fits(reasons, said)), None)


def gist(pattern: re.Pattern[str], said: str) -> str:
    """Compute's message, which GKE puts inside a longer text; the whole text if it is not found."""
    found = pattern.search(said)
    return found[0] if found is not None else said


def _busy(_project: str, said: str) -> Outcome:
    return Busy(said)


def _throttled(_project: str, said: str) -> Outcome:
    return Throttled(said)


def _stockout(_project: str, said: str) -> Outcome:
    return StockedOut(gist(_STOCKOUT_GIST, said))


_STOCKOUT_GIST = re.compile(r"The zone '[^']+' does not have enough resources[^.;]*\.?", re.IGNORECASE)


def _refused(hint: str) -> Make:
    return lambda _, said: Refused(said, hint)


def _api_disabled(project: str, said: str) -> Outcome:
    return Refused(
        f"A required API is disabled in the project {project}: {said.partition('. ')[0]}",
        f"run `gcloud services enable container.googleapis.com compute.googleapis.com --project={project}` "
        "and wait a few minutes",
    )


def _no_quota_project(project: str, said: str) -> Outcome:
    return Refused(said, f"run `gcloud auth application-default set-quota-project {project}`")


def _no_project(project: str, said: str) -> Outcome:
    return Refused(
        f"The project {project} does not exist, or the account may not see it: {said}",
        "correct `cloud.project` in the fleet file (the project's id, not its name)",
    )


def _no_billing(project: str, said: str) -> Outcome:
    return Refused(
        f"The project {project} has no billing account: {said}",
        f"link a billing account at https://console.cloud.google.com/billing/linkedaccount?project={project}",
    )


STOCKOUT = rule(
    _stockout,
    "GCE_STOCKOUT",
    "RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "REGION_RESOURCE_POOL_EXHAUSTED",
    "insufficientCapacity",
    "UNSUPPORTED_OPERATION",
    phrase=r"GCE_STOCKOUT|RESOURCE_POOL_EXHAUSTED|does not have enough resources available"
    r"|does not (currently )?have sufficient capacity",
)
"""A machine that is preempted while it is created gets UNSUPPORTED_OPERATION."""

PERMANENT = (
    rule(_no_quota_project, phrase=r"requires a quota project"),
    rule(
        _refused(
            "grant the account roles/serviceusage.serviceUsageConsumer in that project, or choose another project with "
            "`gcloud auth application-default set-quota-project`"
        ),
        "USER_PROJECT_DENIED",
        phrase=r"permission to use project",
    ),
    rule(_api_disabled, "SERVICE_DISABLED", "accessNotConfigured", phrase=r"has not been used in project .* before"),
    rule(_no_billing, "BILLING_DISABLED", "UREQ_PROJECT_BILLING_NOT_FOUND", phrase=r"billing .*(disabled|enabled)"),
    rule(
        _no_project,
        "CONSUMER_INVALID",
        "RESOURCE_PROJECT_INVALID",
        "PROJECT_NOT_FOUND",
        phrase=r"project '?[^ ']+'? (was )?not found|denied on resource project|unknown project",
    ),
    rule(
        _refused("correct the cluster's `location` in the fleet file"),
        "LOCATION_POLICY_VIOLATED",
        phrase=r"denied on 'locations/|invalid zone|invalid location",
    ),
    rule(
        _refused("give the cluster a larger subnetwork or pod range"),
        "IP_SPACE_EXHAUSTED",
        "IP_SPACE_EXHAUSTED_WITH_DETAILS",
        phrase=r"IP_SPACE_EXHAUSTED|IP space .*exhausted|no free IP|(insufficient|not enough) free (IP )?address",
    ),
    rule(
        _refused("correct `service_account` in the fleet file, or restore the project's GKE service account"),
        "GKE_SERVICE_ACCOUNT_DELETED",
        phrase=r"service ?account .*(does not exist|not found|deleted)",
    ),
    rule(
        _refused("ask the administrator of the organisation to allow it, or change the fleet file"),
        "VM_EXTERNAL_IP_ACCESS_POLICY_CONSTRAINT",
        phrase=r"constraints?/[\w.]+|organi[sz]ation policy|org policy",
    ),
    rule(
        _refused("disable the deletion protection, or delete the resource by hand"),
        phrase=r"deletion.?protection",
    ),
    rule(
        _refused("upgrade the cluster's control plane, or create the cluster again with a release channel"),
        phrase=r"version \S+ is (unsupported|not supported)|(requires|supported only|available) .*version"
        r"|version .*(too old|end of life|no longer supported)",
    ),
    rule(
        _refused("inspect the cluster in the console; if it is beyond repair, delete it, and Tradewind recreates it"),
        phrase=r"(in|state|status)( is| of)?:? (an? )?\W?(?-i:ERROR|DEGRADED)\b",
    ),
    rule(
        _refused("restore the cluster's KMS key, or grant the cluster's account the right to use it"),
        "CLOUD_KMS_KEY_ERROR",
        "CLOUD_KMS_KEY_DESTROYED",
    ),
    rule(
        _refused("correct the reservation, or request machines without a reservation"),
        "INVALID_RESERVATION",
        "RESERVATION_CAPACITY_EXCEEDED",
    ),
    rule(
        _refused("request fewer nodes in this pool"),
        "LIMIT_EXCEEDED",
        "limitExceeded",
        phrase=r"exceed(s|ed) (the )?(limit|maximum)",
    ),
)
"""Errors on which a person must act. Not verified at Google: the reservation errors and the phrases about versions,
deletion protection and clusters in error."""

FORBIDDEN = rule(_refused(GRANT), "IAM_PERMISSION_DENIED", "PERMISSIONS_ERROR", "forbidden")
"""The rule to try last: Google uses `forbidden` for quotas and rates, too."""

BLOCKED = (
    rule(
        _busy,
        "CLUSTER_ALREADY_HAS_OPERATION",
        "OPERATION_IN_PROGRESS",
        "operationInProgress",
        phrase=r"incompatible operation|concurrent operations|too many operations|please wait and try again"
        r"|is currently (being )?(creat|delet|updat|upgrad|repair|resiz|migrat|reconcil)",
    ),
    rule(
        _throttled,
        "RATE_LIMIT_EXCEEDED",
        "RESOURCE_OPERATION_RATE_EXCEEDED",
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "resourceOperationRateExceeded",
        phrase=r"quota exceeded for quota metric|rate (limit )?exceeded|too many requests|too frequent operations",
    ),
)
"""Errors because of other operations or calls; nothing else in the text counts. Not verified at Google:
`operationInProgress`."""

TEMPORARY = (
    rule(
        _busy,
        "RESOURCE_NOT_READY",
        "resourceNotReady",
        "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
        "resourceInUseByAnotherResource",
        "RESERVATION_NOT_READY",
        "CONDITION_NOT_MET",
        "conditionNotMet",
        phrase=r"(is|are) not (yet )?ready|not (yet )?in (the )?\W?(RUNNING|READY)"
        r"|(in|state|status)( is)?:? (the )?\W?(PROVISIONING|RECONCILING|REPAIRING|STOPPING|UPGRADING)"
        r"|(upgrade|repair|maintenance) (is )?(in progress|under way|running)|try again later",
    ),
)
"""Errors that a retry may resolve. Not verified at Google: `CONDITION_NOT_MET` and `conditionNotMet`."""
