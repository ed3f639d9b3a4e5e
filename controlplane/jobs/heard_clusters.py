"""Times of the last report of each cluster's controller."""

from collections.abc import Sequence

from controlplane.job.forgetting import has_anything_in, is_long_silent
from controlplane.job.state import Job
from messages.ids import ClusterName

CLUSTER_FRESH_S = 5.0
"""Seconds after its last report in which a cluster counts as connected."""


class HeardClusters:
    def __init__(self) -> None:
        self._heard_s: dict[ClusterName, float] = {}

    def hear(self, cluster: ClusterName, now_s: float) -> None:
        self._heard_s[cluster] = now_s

    def forget(self, cluster: ClusterName) -> None:
        self._heard_s.pop(cluster, None)

    def heard_s(self, cluster: ClusterName) -> float | None:
        """When the cluster last reported; None if it is unknown."""
        return self._heard_s.get(cluster)

    def fresh(self, now_s: float) -> int:
        """Number of clusters that were heard a moment ago."""
        return sum(now_s - heard_s <= CLUSTER_FRESH_S for heard_s in self._heard_s.values())

    def unused(self, jobs: Sequence[Job], now_s: float) -> list[ClusterName]:
        """Clusters that are silent for long and in which no job has anything."""
        silent = [name for name, heard_s in self._heard_s.items() if is_long_silent(heard_s, now_s)]
        return [name for name in silent if not any(has_anything_in(job, name) for job in jobs)]
