"""Whose is what we find under a name that we want to use? What is another's is not changed."""

from enum import StrEnum
from typing import assert_never

from controlplane.bootstrap.names import Manifest, title
from controlplane.clouds.outcomes import Busy, Refused
from messages.labels import FLEET_LABEL, MANAGED_BY_LABEL, MANAGER


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


def owner_of(found: Manifest | None, fleet: str) -> Owner:
    if found is None:
        return Owner.NOBODY
    labels = found["metadata"].get("labels") or {}
    if labels.get(MANAGED_BY_LABEL) != MANAGER:
        return Owner.A_STRANGER
    return Owner.US if labels.get(FLEET_LABEL) == fleet else Owner.ANOTHER_FLEET


def to_install(manifest: Manifest, found: Manifest | None, fleet: str, cluster: str) -> Step | Busy | Refused:
    where = f"The {title(manifest)} in the cluster {cluster}"
    if found is not None and _is_being_deleted(found):
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


def _is_being_deleted(found: Manifest) -> bool:
    return bool(found["metadata"].get("deletionTimestamp"))
