"""How a cluster of the fleet is kept ready: the next step, from what the cloud lists and the controller says. Pure."""

from dataclasses import dataclass
from typing import Literal

from controlplane.clouds.interface import ClusterInfo, ClusterPlan, ClusterStatus
from messages.labels import FLEET_LABEL, JOB_LABEL

SILENCE_FIRST_S = 30.0
SILENCE_MOST_S = 600.0
"""Installing again what is there changes nothing, so a controller that is only slow comes to no harm."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next thing to do for a cluster."""

    do: Literal["use", "create", "remove", "wait"]
    why: str = ""
    """Why the cluster is not ready."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The wait for a controller to fall silent, since its cluster was last made ready."""

    installed_s: float
    silence_s: float = SILENCE_FIRST_S
    """Seconds without a word after which the cluster is made ready again."""

    def silent_at_s(self, heard_s: float | None) -> float:
        """`heard_s`: when the controller was last heard."""
        return max(self.installed_s, heard_s if heard_s is not None else self.installed_s) + self.silence_s

    def was_heard(self, heard_s: float | None) -> bool:
        """Since the installation: then it has lost what it had, rather than never had it."""
        return heard_s is not None and heard_s > self.installed_s

    def again(self, heard_s: float | None, installed_s: float, first_s: float = SILENCE_FIRST_S) -> "Watch":
        """After another installation: longer, as long as the controller has never been heard."""
        if self.was_heard(heard_s):
            return Watch(installed_s, first_s)
        return Watch(installed_s, min(self.silence_s * 2, SILENCE_MOST_S))


def next_step(plan: ClusterPlan, listed: ClusterInfo | None) -> Step:
    if listed is None:
        return Step("create")
    if listed.status is ClusterStatus.ERROR and _is_ours_alone(listed, plan):
        return Step("remove", listed.detail)
    return Step("use") if listed.ready else Step("wait", listed.detail or "it is being made")


def _is_ours_alone(cluster: ClusterInfo, plan: ClusterPlan) -> bool:
    """Nobody else's, and no job has anything there."""
    fleet = plan.labels.get(FLEET_LABEL)
    is_ours = fleet is not None and cluster.labels.get(FLEET_LABEL) == fleet
    return is_ours and not any(JOB_LABEL in pool.labels for pool in cluster.pools)
