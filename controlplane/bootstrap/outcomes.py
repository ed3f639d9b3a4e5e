"""Outcomes of an attempt to install: what an API error or an existing object means, and what a person can do. Pure."""

from enum import StrEnum
from typing import assert_never

from controlplane.bootstrap.names import title
from controlplane.clouds.outcomes import Busy, Done, Refused, Throttled, Unreachable
from messages.labels import FLEET_LABEL, MANAGED_BY_LABEL, MANAGER
from runtime.kubernetes.client import ApiRefused, ApiUnavailable
from runtime.kubernetes.paths import Manifest

PassOutcome = Done | Busy | Throttled | Unreachable | Refused
"""The possible results of one attempt to install."""

TERMINATING = "NamespaceTerminating"
"""The cause that Kubernetes gives while a namespace is being deleted."""


class Owner(StrEnum):
    """The owner of an existing object, by its labels."""

    NONE = "none"
    """The object does not exist."""
    THIS_FLEET = "this_fleet"
    ANOTHER_FLEET = "another_fleet"
    UNMANAGED = "unmanaged"
    """Tradewind did not create the object."""


class Step(StrEnum):
    """What the installation does with one object."""

    APPLY = "apply"
    SKIP = "skip"
    """Use the existing object and do not change it."""


def outcome_of(error: ApiUnavailable | ApiRefused, action: str, cluster: str) -> PassOutcome:
    """The outcome of an API error. `action` follows "Tradewind cannot" in the messages of most errors."""
    said = (error.why if isinstance(error, ApiUnavailable) else str(error)).strip().rstrip(".")
    cannot = f"Tradewind cannot {action} in the cluster {cluster}"
    if isinstance(error, ApiRefused) and TERMINATING in error.causes:
        return Busy(f"{cannot}, because the namespace is being deleted")
    match error.code:
        case 0:
            return Unreachable(
                f"The Kubernetes API of the cluster {cluster} does not answer ({said}): check that the API runs "
                "and that this machine may reach it (`authorized_networks` of the fleet file, a private endpoint, "
                "a proxy)"
            )
        case 401:
            return Refused(
                f"The cluster {cluster} rejects Tradewind's access token.",
                "check that the account in the fleet's credentials belongs to the cluster's project",
            )
        case 403:
            return Refused(
                f"{cannot}: {said}.",
                f"let the account in the fleet's credentials administer the cluster {cluster} and its roles "
                "(on Google: roles/container.admin)",
            )
        case 404 | 409:
            return Busy(f"{cannot} now, because another client changes or deletes the same objects: {said}")
        case 429:
            return Throttled(f"The Kubernetes API of the cluster {cluster} gets too many requests: {said}")
        case status if status >= 500:
            return Unreachable(f"The Kubernetes API of the cluster {cluster} fails with {status}: {said}")
        case _:
            return Refused(
                f"{cannot}: {said}.",
                "if a policy of the cluster refuses the object, exempt Tradewind's namespace from the policy; "
                "otherwise check the fleet's settings",
            )


def decide_step(manifest: Manifest, found: Manifest | None, fleet: str, cluster: str) -> Step | Busy | Refused:
    """Decide what to do about one object. `found` is the existing object of that name; only this fleet's may change."""
    where = f"The {title(manifest)} in the cluster {cluster}"
    if found is not None and found["metadata"].get("deletionTimestamp"):
        return Busy(f"{where} is being deleted; Tradewind creates it again when it is gone")
    owner = owner_of(found, fleet)
    match owner:
        case Owner.NONE | Owner.THIS_FLEET:
            return Step.APPLY
        case Owner.UNMANAGED if manifest["kind"] == "Namespace":
            # Tradewind uses the namespace but does not change it.
            return Step.SKIP
        case Owner.UNMANAGED:
            return Refused(
                f"{where} was not created by Tradewind, so Tradewind does not change it.",
                f"remove or rename the {title(manifest)}, or give the fleet {fleet} its own namespace",
            )
        case Owner.ANOTHER_FLEET:
            return Refused(
                f"{where} belongs to another fleet, not to {fleet}.", f"give the fleet {fleet} its own namespace"
            )
    assert_never(owner)


def owner_of(found: Manifest | None, fleet: str) -> Owner:
    if found is None:
        return Owner.NONE
    labels = found["metadata"].get("labels") or {}
    if labels.get(MANAGED_BY_LABEL) != MANAGER:
        return Owner.UNMANAGED
    return Owner.THIS_FLEET if labels.get(FLEET_LABEL) == fleet else Owner.ANOTHER_FLEET
