"""What an answer or a found object means for an installation, as an outcome that a person can act on. Makes no call."""

from enum import StrEnum
from typing import assert_never

from controlplane.bootstrap.names import title
from controlplane.clouds.outcomes import Busy, Done, Refused, Throttled, Unreachable
from messages.labels import FLEET_LABEL, MANAGED_BY_LABEL, MANAGER
from runtime.kubernetes.client import ApiRefused, ApiUnavailable
from runtime.kubernetes.paths import Manifest

PassOutcome = Done | Busy | Throttled | Unreachable | Refused
"""How one attempt to install can end."""

TERMINATING = "NamespaceTerminating"


class Owner(StrEnum):
    NOBODY = "nobody"
    """There is no such object."""
    US = "us"
    ANOTHER_FLEET = "another_fleet"
    A_STRANGER = "a_stranger"
    """Not made by Tradewind."""


class Step(StrEnum):
    APPLY = "apply"
    LEAVE = "leave"


def outcome_of(error: ApiUnavailable | ApiRefused, doing: str, cluster: str) -> PassOutcome:
    """`doing` continues the sentence "Tradewind cannot"."""
    said = (error.why if isinstance(error, ApiUnavailable) else str(error)).strip().rstrip(".")
    cannot = f"Tradewind cannot {doing} in the cluster {cluster}"
    if isinstance(error, ApiRefused) and TERMINATING in error.causes:
        return Busy(f"{cannot} before the namespace, which is being deleted, is gone")
    match error.code:
        case 0:
            return Unreachable(
                f"The Kubernetes API of the cluster {cluster} does not answer ({said}): see that it is running and that"
                " this machine may reach it (`authorized_networks` of the fleet file, a private endpoint, a proxy)"
            )
        case 401:
            return Refused(
                f"The cluster {cluster} does not accept our access token.",
                "check which account the credentials belong to, and that it is one of the cluster's project",
            )
        case 403:
            return Refused(
                f"{cannot}: {said}.",
                f"let that account administer the cluster {cluster}, roles too (on Google: roles/container.admin)",
            )
        case 404 | 409:
            return Busy(f"{cannot} just now, since somebody else is changing it: {said}")
        case 429:
            return Throttled(f"The Kubernetes API of the cluster {cluster} asks us to slow down: {said}")
        case status if status >= 500:
            return Unreachable(f"The Kubernetes API of the cluster {cluster} fails with {status}: {said}")
        case _:
            return Refused(
                f"{cannot}: {said}.",
                "if that is a policy of the cluster, except our namespace from it; else check the fleet's settings",
            )


def to_install(manifest: Manifest, found: Manifest | None, fleet: str, cluster: str) -> Step | Busy | Refused:
    """Decides what to do with an object that has the name we want to use: that of another owner is not changed."""
    where = f"The {title(manifest)} in the cluster {cluster}"
    if found is not None and found["metadata"].get("deletionTimestamp"):
        return Busy(f"{where} is being deleted; it is made again when it is gone")
    owner = owner_of(found, fleet)
    match owner:
        case Owner.NOBODY | Owner.US:
            return Step.APPLY
        case Owner.A_STRANGER if manifest["kind"] == "Namespace":
            # It is used, and stays theirs.
            return Step.LEAVE
        case Owner.A_STRANGER:
            return Refused(
                f"{where} was not made by Tradewind, so it is left as it is.",
                "remove or rename it, or give the fleet a namespace of its own",
            )
        case Owner.ANOTHER_FLEET:
            return Refused(
                f"{where} belongs to another fleet than {fleet}.", f"give the fleet {fleet} a namespace of its own"
            )
    assert_never(owner)


def owner_of(found: Manifest | None, fleet: str) -> Owner:
    if found is None:
        return Owner.NOBODY
    labels = found["metadata"].get("labels") or {}
    if labels.get(MANAGED_BY_LABEL) != MANAGER:
        return Owner.A_STRANGER
    return Owner.US if labels.get(FLEET_LABEL) == fleet else Owner.ANOTHER_FLEET
