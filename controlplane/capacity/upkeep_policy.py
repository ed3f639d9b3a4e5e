"""Rules for the upkeep of a cluster: the next step, from the cloud's listing and the controller's silence. Pure."""

from dataclasses import dataclass
from typing import Literal

from controlplane.clouds.interface import ClusterInfo, ClusterPlan, ClusterStatus
from messages.labels import FLEET_LABEL, JOB_LABEL

SILENCE_FIRST_S = 30.0
SILENCE_MOST_S = 600.0
"""Seconds of silence, first and at most, before a cluster is set up again. This does not disturb a slow controller."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next thing to do for a cluster."""

    do: Literal["use", "create", "remove", "wait"]
    why: str = ""
    """Why the cluster is not ready."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The watch for a silent controller since its cluster was last set up."""

    installed_s: float
    silence_s: float = SILENCE_FIRST_S
    """Seconds of silence after which the cluster is set up again."""

    def silent_at_s(self, heard_s: float | None) -> float:
        """Monotonic seconds at which the controller counts as silent; `heard_s`: when it was last heard."""
        return max(self.installed_s, heard_s if heard_s is not None else self.installed_s) + self.silence_s

    def was_heard(self, heard_s: float | None) -> bool:
        """Check whether the controller was heard since the installation, so that it has been lost since then."""
        return heard_s is not None and heard_s > self.installed_s

    def again(self, heard_s: float | None, installed_s: float, first_s: float = SILENCE_FIRST_S) -> "Watch":
        """The watch after another installation. Its silence doubles while the controller has never been heard."""
        if self.was_heard(heard_s):
            return Watch(installed_s, first_s)
        return Watch(installed_s, min(self.silence_s * 2, SILENCE_MOST_S))


def next_step(plan: ClusterPlan, listed: ClusterInfo | None) -> Step:
    if listed is None:
        return Step("create")
    if listed.status is ClusterStatus.ERROR and _is_ours_alone(listed, plan):
        return Step("remove", listed.detail)
    return Step("use") if listed.ready else Step("wait", listed.detail or "it is being created")


def _is_ours_alone(cluster: ClusterInfo, plan: ClusterPlan) -> bool:
    """Check that the cluster belongs to this fleet and has no pool of a job."""
    fleet = plan.labels.get(FLEET_LABEL)
    is_ours = fleet is not None and cluster.labels.get(FLEET_LABEL) == fleet
    return is_ours and not any(JOB_LABEL in pool.labels for pool in cluster.pools)
