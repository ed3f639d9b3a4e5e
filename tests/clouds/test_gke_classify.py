"""Messages of Google and their outcomes."""

import pytest

from controlplane.clouds.gke.classify import (
    LONGEST_DETAIL,
    OperationReport,
    call_outcome,
    creation_outcome,
    group_problem,
    operation_outcome,
    read_problem,
)
from controlplane.clouds.gke.failures import CallFailed, Code, code_named, code_numbered
from controlplane.clouds.gke.quotas import with_page
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

STOCKOUT = (
    "Google Compute Engine: Not all instances running in IGM after 35m4.03s. Expected 5, running 2, transitioning 3. "
    "Current errors: [GCE_STOCKOUT]: Instance 'gke-a-1' creation failed: The zone 'projects/p/zones/us-central1-c' "
    "does not have enough resources available to fulfill the request. '(resource type:compute)'."
)
QUOTA = (
    "Current errors: [GCE_QUOTA_EXCEEDED]: Instance 'a' creation failed: Quota 'NVIDIA_T4_GPUS' exceeded. Limit: 0.0"
)
QUOTA_AT_ONCE = (
    "Insufficient regional quota to satisfy request: resource \"NVIDIA_L4_GPUS\": request requires '1.0' and is short "
    "'1.0'. project has a quota of '0.0' with '0.0' available."
)
DISABLED = (
    "Kubernetes Engine API has not been used in project p before or it is disabled. Enable it by visiting https://x"
)


@pytest.mark.parametrize(
    ("code", "message", "reason", "outcome"),
    [
        (Code.ALREADY_EXISTS, "Already exists: projects/p/…", "", AlreadyExists),
        (Code.NOT_FOUND, "Not found: projects/p/locations/l/clusters/c.", "", NotFound),
        (Code.FAILED_PRECONDITION, "Cluster is running incompatible operation operation-1.", "", Busy),
        (Code.FAILED_PRECONDITION, "x", "CLUSTER_ALREADY_HAS_OPERATION", Busy),
        (
            Code.FAILED_PRECONDITION,
            "Operation operation-1596 is currently upgrading cluster c. Please wait and try again once it is done.",
            "",
            Busy,
        ),
        (Code.FAILED_PRECONDITION, "Operation operation-1 is currently creating a node pool for cluster c.", "", Busy),
        (Code.FAILED_PRECONDITION, "Cluster c is not in the RUNNING state: its status is RECONCILING.", "", Busy),
        (Code.FAILED_PRECONDITION, "Node pool p: repair in progress.", "", Busy),
        (Code.FAILED_PRECONDITION, "Something nobody has heard of.", "", Unexplained),
        (Code.FAILED_PRECONDITION, "Conditions were not met.", "conditionNotMet", Busy),
        (Code.INVALID_ARGUMENT, "The resource 'projects/p/…/default' is not ready", "resourceNotReady", Busy),
        (Code.INVALID_ARGUMENT, "The resource is used by 'x'", "resourceInUseByAnotherResource", Busy),
        (Code.INVALID_ARGUMENT, "x", "RESOURCE_NOT_READY", Busy),
        (Code.INVALID_ARGUMENT, "x", "operationInProgress", Busy),
        (Code.PERMISSION_DENIED, "Too frequent operations", "RESOURCE_OPERATION_RATE_EXCEEDED", Throttled),
        (Code.PERMISSION_DENIED, "Quota 'CPUS' exceeded. Limit: 8.0", "quotaExceeded", QuotaExceeded),
        (Code.INVALID_ARGUMENT, "x", "UNSUPPORTED_OPERATION", StockedOut),
        (Code.ABORTED, "Try again.", "", Busy),
        (Code.RESOURCE_EXHAUSTED, 'cluster "c" hits the concurrent operations quota 5, please try later', "", Busy),
        (Code.RESOURCE_EXHAUSTED, "Quota exceeded for quota metric 'Requests' and limit …", "", Throttled),
        (Code.RESOURCE_EXHAUSTED, "x", "RATE_LIMIT_EXCEEDED", Throttled),
        (Code.PERMISSION_DENIED, "Rate Limit Exceeded", "rateLimitExceeded", Throttled),
        (Code.RESOURCE_EXHAUSTED, "Something nobody has heard of.", "", Throttled),
        (Code.PERMISSION_DENIED, QUOTA_AT_ONCE, "", QuotaExceeded),
        (Code.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED: Quota 'CPUS' exceeded.", "", QuotaExceeded),
        (Code.RESOURCE_EXHAUSTED, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: …", "", StockedOut),
        (Code.UNAVAILABLE, "failed to connect to all addresses", "", Unreachable),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", "", Unreachable),
        (Code.INTERNAL, "Internal error.", "", Unreachable),
        (Code.UNKNOWN, "Stream removed", "", Unreachable),
        (Code.INVALID_ARGUMENT, "Invalid value", "", Refused),
        (Code.UNIMPLEMENTED, "Method not found!", "", Refused),
        (Code.UNAUTHENTICATED, "Request had invalid authentication credentials.", "", Refused),
        (Code.PERMISSION_DENIED, DISABLED, "", Refused),
        (Code.PERMISSION_DENIED, "x", "SERVICE_DISABLED", Refused),
    ],
)
def test_a_call_that_failed_has_one_outcome(code: Code, message: str, reason: str, outcome: type[Outcome]) -> None:
    assert type(call_outcome(CallFailed(code, message, reason), "p")) is outcome


@pytest.mark.parametrize(
    ("failed", "reported", "hint"),
    [
        (
            CallFailed(Code.PERMISSION_DENIED, DISABLED, "SERVICE_DISABLED"),
            "project p:",
            "services enable",
        ),
        (
            CallFailed(Code.PERMISSION_DENIED, "Permission denied on resource project p.", "CONSUMER_INVALID"),
            "project p ",
            "cloud.project",
        ),
        (CallFailed(Code.NOT_FOUND, "Project p was not found."), "project p ", "cloud.project"),
        (
            CallFailed(Code.FAILED_PRECONDITION, "x", "BILLING_DISABLED"),
            "project p ",
            "billing/linkedaccount?project=p",
        ),
        (
            CallFailed(Code.PERMISSION_DENIED, "Permission denied on 'locations/mars' (or it may not exist)."),
            "mars",
            "location",
        ),
        (
            CallFailed(Code.PERMISSION_DENIED, 'Required "container.clusters.list" permission.'),
            "container.clusters.list",
            "roles/container.admin",
        ),
        (
            CallFailed(Code.UNAUTHENTICATED, "invalid authentication credentials"),
            "invalid authentication",
            "gcloud auth",
        ),
        (CallFailed(Code.UNAUTHENTICATED, "key.json is missing", hint="make one"), "key.json", "make one"),
        (
            CallFailed(Code.FAILED_PRECONDITION, "IP space of 'projects/p/…/default-a1b2' is exhausted."),
            "exhausted",
            "pod range",
        ),
        (
            CallFailed(Code.FAILED_PRECONDITION, "Cluster c is in an ERROR state."),
            "ERROR state",
            "console",
        ),
        (
            CallFailed(Code.FAILED_PRECONDITION, "Cannot delete cluster: deletion protection is enabled."),
            "deletion protection",
            "deletion protection",
        ),
        (
            CallFailed(Code.FAILED_PRECONDITION, 'Master version "1.14.7-gke.10" is unsupported.'),
            "1.14.7",
            "upgrade",
        ),
        (
            CallFailed(Code.FAILED_PRECONDITION, "Constraint constraints/compute.vmExternalIpAccess violated", "x"),
            "vmExternalIpAccess",
            "organisation",
        ),
    ],
)
def test_what_a_person_has_to_do_is_said(failed: CallFailed, reported: str, hint: str) -> None:
    outcome = call_outcome(failed, "p")
    assert isinstance(outcome, Refused)
    assert reported in outcome.detail
    assert hint in outcome.hint


def test_an_exceeded_quota_names_the_page_to_ask_for_more() -> None:
    outcome = call_outcome(CallFailed(Code.PERMISSION_DENIED, QUOTA_AT_ONCE), "p")
    assert isinstance(outcome, QuotaExceeded)
    assert "NVIDIA_L4_GPUS" in outcome.detail
    assert "https://console.cloud.google.com/iam-admin/quotas?project=p" in outcome.detail


def test_of_the_history_that_gke_wraps_around_a_shortage_only_the_shortage_is_told() -> None:
    history = "Not all instances running in IGM after 1s. Expected 1, running 0, transitioning 1. Current errors: "
    gist = "Quota 'NVIDIA_L4_GPUS' exceeded. Limit: 0.0 in region us-central1."
    quota = f"{history}[GCE_QUOTA_EXCEEDED]: Instance 'x' creation failed: {gist.replace('. ', '.  ')}"
    outcome = operation_outcome(ended(Code.UNKNOWN, quota, ("GCE_QUOTA_EXCEEDED", quota)), "p")
    assert outcome == QuotaExceeded(with_page(gist, "p"))
    zone = "The zone 'projects/p/zones/us-central1-a' does not have enough resources available to fulfill the request."
    short = f"{history}[GCE_STOCKOUT]: Instance 'x' creation failed: {zone}  '(resource type:compute)'."
    assert operation_outcome(ended(Code.UNKNOWN, short, ("GCE_STOCKOUT", short)), "p") == StockedOut(zone)


def ended(error: Code | None = None, message: str = "", *conditions: tuple[str, str]) -> OperationReport:
    return OperationReport("operation-1", "us-central1-a", True, error, message, conditions)


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (ended(), Done),
        (ended(None, "", ("SET_BY_OPERATOR", "")), Done),
        (ended(None, "", ("CA_EXPIRING", "in 30 days")), Done),
        (ended(None, "", ("GCE_STOCKOUT", "")), StockedOut),
        (ended(None, "", ("UNKNOWN", STOCKOUT)), StockedOut),
        (ended(Code.UNKNOWN, STOCKOUT), StockedOut),
        (ended(Code.RESOURCE_EXHAUSTED, "ZONE_RESOURCE_POOL_EXHAUSTED"), StockedOut),
        (ended(Code.RESOURCE_EXHAUSTED, "Something nobody has heard of."), StockedOut),
        (ended(Code.UNKNOWN, QUOTA), QuotaExceeded),
        (ended(Code.UNKNOWN, f"{STOCKOUT}; {QUOTA}"), QuotaExceeded),
        (ended(None, "", ("GCE_QUOTA_EXCEEDED", "")), QuotaExceeded),
        (ended(Code.INTERNAL, "An internal error has occurred."), Unexplained),
        (ended(Code.ABORTED, "Operation was aborted."), Busy),
        (ended(Code.CANCELLED, ""), Busy),
        (ended(Code.DEADLINE_EXCEEDED, "only 0 nodes out of 1 have registered"), Unexplained),
        (ended(Code.FAILED_PRECONDITION, "Something nobody has heard of."), Unexplained),
        (ended(Code.UNAVAILABLE, "away"), Busy),
        (ended(Code.NOT_FOUND, "gone"), NotFound),
        (ended(Code.ALREADY_EXISTS, "there"), AlreadyExists),
        (ended(Code.INVALID_ARGUMENT, "Machine type is not supported in zone"), Refused),
        (ended(Code.PERMISSION_DENIED, "may not"), Refused),
        (ended(Code.UNKNOWN, "[IP_SPACE_EXHAUSTED]: no free IP"), Refused),
        (ended(Code.UNKNOWN, "x", ("GKE_SERVICE_ACCOUNT_DELETED", "")), Refused),
    ],
)
def test_an_operation_that_ended_has_one_outcome(report: OperationReport, outcome: type[Outcome]) -> None:
    assert type(operation_outcome(report, "p")) is outcome


@pytest.mark.parametrize(
    ("code", "message", "outcome"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "", StockedOut),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "", StockedOut),
        ("RESOURCE_POOL_EXHAUSTED", "The creation resulted in error.", StockedOut),
        ("UNSUPPORTED_OPERATION", "", StockedOut),
        ("QUOTA_EXCEEDED", "Quota 'NVIDIA_L4_GPUS' exceeded.  Limit: 0.0 in region us-central1.", QuotaExceeded),
        ("IP_SPACE_EXHAUSTED", "", Refused),
        ("IP_SPACE_EXHAUSTED_WITH_DETAILS", "", Refused),
        ("PERMISSIONS_ERROR", "Required 'compute.instances.create' permission", Refused),
        ("VM_EXTERNAL_IP_ACCESS_POLICY_CONSTRAINT", "", Refused),
        ("CONDITION_NOT_MET", "Constraint constraints/compute.vmExternalIpAccess violated", Refused),
        ("CONDITION_NOT_MET", "The fingerprint changed", None),
        ("INVALID_RESERVATION", "", Refused),
        ("INTERNAL_ERROR", "Internal error", None),
        ("RESOURCE_NOT_READY", "is not ready", None),
    ],
)
def test_an_error_of_an_instance_group_is_a_shortage_or_passes(
    code: str, message: str, outcome: type[Outcome] | None
) -> None:
    assert type(group_problem(code, message, "p")) is (outcome or type(None))


def test_every_code_has_an_outcome_in_a_call_and_in_an_operation() -> None:
    for code in Code:
        assert not isinstance(call_outcome(CallFailed(code, "x"), "p"), Done)
        assert not isinstance(operation_outcome(ended(code, "x"), "p"), Done)


def test_a_read_is_either_refused_or_unanswered() -> None:
    for code in Code:
        assert isinstance(read_problem(CallFailed(code, "x"), "p"), Unreachable | Refused)
    assert isinstance(read_problem(CallFailed(Code.RESOURCE_EXHAUSTED, "x"), "p"), Unreachable)
    assert isinstance(read_problem(CallFailed(Code.NOT_FOUND, "x"), "p"), Refused)


def test_a_cluster_whose_network_is_not_found_is_refused() -> None:
    outcome = creation_outcome(CallFailed(Code.NOT_FOUND, 'Network "x" does not exist.'), "p")
    assert isinstance(outcome, Refused)
    assert "network" in outcome.hint


def test_a_detail_is_one_line_of_bounded_length() -> None:
    outcome = call_outcome(CallFailed(Code.NOT_FOUND, "a\nb\t c " + "x" * 5000), "p")
    assert isinstance(outcome, NotFound)
    assert outcome.detail.startswith("a b c xxx")
    assert len(outcome.detail) == LONGEST_DETAIL


def test_codes_are_known_by_name_and_by_number() -> None:
    assert [code_numbered(number) for number in (1, 5, 8, 14, 16)] == [
        Code.CANCELLED,
        Code.NOT_FOUND,
        Code.RESOURCE_EXHAUSTED,
        Code.UNAVAILABLE,
        Code.UNAUTHENTICATED,
    ]
    assert code_numbered(99) is code_named("NO_SUCH_CODE") is Code.UNKNOWN
