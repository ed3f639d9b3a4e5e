"""What a Kubernetes API said, or that it said nothing, as an outcome that a person can act on."""

from dataclasses import dataclass

from controlplane.clouds.outcomes import Busy, Done, Refused, Throttled, Unreachable

PassOutcome = Done | Busy | Throttled | Unreachable | Refused
"""How a try to install or to remove can end."""

TERMINATING = "NamespaceTerminating"


@dataclass(frozen=True, slots=True)
class Complaint:
    """A call that did not succeed. `status` is HTTP's, or 0 where nobody answered."""

    status: int
    message: str
    causes: frozenset[str] = frozenset()
    """Constants of Kubernetes, such as `NamespaceTerminating`."""


def outcome_of(complaint: Complaint, doing: str, cluster: str) -> PassOutcome:
    """`doing` reads on after "cannot"."""
    said = complaint.message.strip().rstrip(".")
    cannot = f"Tradewind cannot {doing} in the cluster {cluster}"
    if TERMINATING in complaint.causes:
        return Busy(f"{cannot} before the namespace, which is being deleted, is gone")
    match complaint.status:
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
