"""Refusals of the cloud with Google's codes and texts, so that clients are tested with both."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.cloud.model.names import ClusterKey, OperationName, PoolKey

if TYPE_CHECKING:
    from simulator.cloud.model.quotas import Short

CONTAINER = "container.googleapis.com"
COMPUTE = "compute.googleapis.com"
_TITLES = {CONTAINER: "Kubernetes Engine API", COMPUTE: "Compute Engine API"}


class Code(enum.StrEnum):
    """Names of gRPC's status codes."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    INTERNAL = "INTERNAL"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Refusal:
    code: Code
    message: str
    reason: str = ""
    """Reason in the error's ErrorInfo, where Google gives one."""
    domain: str = "googleapis.com"


def invalid(message: str) -> Refusal:
    return Refusal(Code.INVALID_ARGUMENT, message)


def no_cluster(key: ClusterKey) -> Refusal:
    return Refusal(Code.NOT_FOUND, f"Not found: {key}.\nNo cluster named '{key.cluster}' in {key.project}.")


def no_pool(key: PoolKey) -> Refusal:
    return Refusal(Code.NOT_FOUND, f"Not found: {key}.\nNo node pool named '{key.pool}' in '{key.cluster}'.")


def no_operation(project: str, location: str, name: str) -> Refusal:
    return Refusal(Code.NOT_FOUND, f"Not found: projects/{project}/locations/{location}/operations/{name}.")


def no_resource(what: str) -> Refusal:
    return Refusal(Code.NOT_FOUND, f"The resource '{what}' was not found")


def exists(what: ClusterKey | PoolKey) -> Refusal:
    return Refusal(Code.ALREADY_EXISTS, f"Already exists: {what}.")


def busy(operation: OperationName) -> Refusal:
    message = f"Cluster is running incompatible operation {operation}."
    return Refusal(Code.FAILED_PRECONDITION, message, "CLUSTER_ALREADY_HAS_OPERATION", CONTAINER)


def excluded(key: PoolKey) -> Refusal:
    message = f"Node pool {key.pool}: a maintenance exclusion forbids upgrades of nodes now."
    return Refusal(Code.FAILED_PRECONDITION, message)


def too_many_operations(key: ClusterKey, limit: int) -> Refusal:
    return Refusal(
        Code.RESOURCE_EXHAUSTED,
        f'Too many operations: cluster "{key.cluster}" hits the concurrent operations quota {limit}, '
        "please try again later.",
    )


def no_location(location: str) -> Refusal:
    message = f"Permission denied on 'locations/{location}' (or it may not exist)."
    return Refusal(Code.PERMISSION_DENIED, message, "LOCATION_POLICY_VIOLATED")


def no_project(project: str) -> Refusal:
    message = f"Permission denied on resource project {project}."
    return Refusal(Code.PERMISSION_DENIED, message, "CONSUMER_INVALID")


def api_disabled(project: str, service: str) -> Refusal:
    where = f"https://console.developers.google.com/apis/api/{service}/overview?project={project}"
    return Refusal(
        Code.PERMISSION_DENIED,
        f"{_TITLES[service]} has not been used in project {project} before or it is disabled. Enable it by visiting "
        f"{where} then retry. If you enabled this API recently, wait a few minutes for the action to propagate to our "
        "systems and retry.",
        "SERVICE_DISABLED",
    )


def no_quota_project(service: str) -> Refusal:
    return Refusal(
        Code.PERMISSION_DENIED,
        f"Your application is authenticating by using local Application Default Credentials. The {service} API "
        "requires a quota project, which is not set by default. To learn how to set your quota project, see "
        "https://cloud.google.com/docs/authentication/adc-troubleshooting/user-creds .",
        "SERVICE_DISABLED",
    )


def user_project_denied(project: str) -> Refusal:
    return Refusal(
        Code.PERMISSION_DENIED,
        f"Caller does not have required permission to use project {project}. Grant the caller the "
        "roles/serviceusage.serviceUsageConsumer role, or a custom role with the serviceusage.services.use permission, "
        f"by visiting https://console.developers.google.com/iam-admin/iam/project?project={project} and then retry.",
        "USER_PROJECT_DENIED",
    )


def not_signed_in() -> Refusal:
    return Refusal(
        Code.UNAUTHENTICATED,
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
        "authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.",
        "ACCESS_TOKEN_TYPE_UNSUPPORTED",
    )


def throttled(project: str, service: str) -> Refusal:
    return Refusal(
        Code.RESOURCE_EXHAUSTED,
        f"Quota exceeded for quota metric 'Requests' and limit 'Requests per minute' of service '{service}' "
        f"for consumer 'project:{project}'.",
        "RATE_LIMIT_EXCEEDED",
    )


def away() -> Refusal:
    return Refusal(Code.UNAVAILABLE, "The service is currently unavailable.")


def short_of_quota(project: str, short: Sequence["Short"]) -> Refusal:
    """One quota makes a sentence, several make a numbered list."""
    reported = [_short(project, each) for each in short]
    if len(reported) == 1:
        return Refusal(Code.PERMISSION_DENIED, f"I{reported[0][1:]}.")
    listed = "".join(f"\n\t({number}) {each}" for number, each in enumerate(reported, start=1))
    return Refusal(Code.PERMISSION_DENIED, f"{listed}.")


def _short(project: str, short: "Short") -> str:
    return (
        f'insufficient {"regional" if short.scope else "project"} quota to satisfy request: resource "{short.metric}": '
        f"request requires '{short.wanted}.0' and is short '{short.wanted - short.free}.0'. project has a quota of "
        f"'{short.limit}.0' with '{short.free}.0' available. View and manage quotas at "
        f"https://console.cloud.google.com/iam-admin/quotas?usage=USED&project={project}"
    )


def stocked_out(project: str, zone: str, node: str) -> str:
    return (
        f"Instance '{node}' creation failed: The zone 'projects/{project}/zones/{zone}' does not have enough resources "
        "available to fulfill the request.  '(resource type:compute)'."
    )


def over_quota(scope: str, node: str, metric: str, limit: int) -> str:
    where = f"in region {scope}" if scope else "globally"
    return f"Instance '{node}' creation failed: Quota '{metric}' exceeded.  Limit: {limit}.0 {where}."
