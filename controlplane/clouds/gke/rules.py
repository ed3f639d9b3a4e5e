"""Why Google refuses: tables of its constants and phrases. The first rule that fits decides.

Constants are those of `google.rpc.ErrorInfo`, of Compute's older errors (with a small first letter), of the errors of
instance groups, and of GKE's status conditions.
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
"""An outcome of the project and of what Google said."""


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
    """GKE wraps what Compute said in a history of its own: the one sentence that matters, where it is found."""
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
        f"There is no project {project}, or the account may not see it: {said}",
        "correct `cloud.project` in the fleet file (the project's id, not its name)",
    )


def _no_billing(project: str, said: str) -> Outcome:
    return Refused(
        f"The project {project} has no billing account: {said}",
        f"link one at https://console.cloud.google.com/billing/linkedaccount?project={project}",
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
"""UNSUPPORTED_OPERATION is what a machine gets that is preempted while it is created."""

PERMANENT = (
    rule(_no_quota_project, phrase=r"requires a quota project"),
    rule(
        _refused(
            "grant the account roles/serviceusage.serviceUsageConsumer in that project, or choose another with "
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
        _refused("switch the deletion protection off, or delete it by hand"),
        phrase=r"deletion.?protection",
    ),
    rule(
        _refused("upgrade the cluster's control plane, or create the cluster again with a release channel"),
        phrase=r"version \S+ is (unsupported|not supported)|(requires|supported only|available) .*version"
        r"|version .*(too old|end of life|no longer supported)",
    ),
    rule(
        _refused("look at the cluster in the console; delete it if it cannot be repaired, Tradewind makes another"),
        phrase=r"(in|state|status)( is| of)?:? (an? )?\W?(?-i:ERROR|DEGRADED)\b",
    ),
    rule(
        _refused("give the cluster's KMS key back, or its account the right to use it"),
        "CLOUD_KMS_KEY_ERROR",
        "CLOUD_KMS_KEY_DESTROYED",
    ),
    rule(
        _refused("correct the reservation, or ask for machines without one"),
        "INVALID_RESERVATION",
        "RESERVATION_CAPACITY_EXCEEDED",
    ),
    rule(
        _refused("ask for fewer nodes in this pool"),
        "LIMIT_EXCEEDED",
        "limitExceeded",
        phrase=r"exceed(s|ed) (the )?(limit|maximum)",
    ),
)
"""A person has to act. The reservation errors and the phrases about versions, deletion protection and clusters in error
are not verified against Google."""

FORBIDDEN = rule(_refused(GRANT), "IAM_PERMISSION_DENIED", "PERMISSIONS_ERROR", "forbidden")
"""The last one: Google says `forbidden` of quotas and rates too."""

IN_THE_WAY = (
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
"""Other operations or calls are in the way; nothing else in the text counts. `operationInProgress` is not verified
against Google."""

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
"""It passes by itself. `CONDITION_NOT_MET` and `conditionNotMet` are not verified against Google."""
