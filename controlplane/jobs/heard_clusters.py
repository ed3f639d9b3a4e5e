"""When the controller of each cluster was last heard."""

from controlplane.job.learn_clusters import CLUSTER_FORGOTTEN_S
from messages.ids import ClusterName

CLUSTER_FRESH_S = 5.0
"""Seconds since the last topology for which a cluster counts as connected."""


class HeardClusters:
    def __init__(self) -> None:
        self._heard_s: dict[ClusterName, float] = {}

    def hear(self, cluster: ClusterName, now_s: float) -> None:
        self._heard_s[cluster] = now_s

    def forget(self, cluster: ClusterName) -> None:
        self._heard_s.pop(cluster, None)

    def heard_s(self, cluster: ClusterName) -> float | None:
        """None for a cluster that is not known."""
        return self._heard_s.get(cluster)

    def fresh(self, now_s: float) -> int:
        """Number of clusters that were heard a moment ago."""
        return sum(now_s - heard_s <= CLUSTER_FRESH_S for heard_s in self._heard_s.values())

    def silent(self, now_s: float) -> list[ClusterName]:
        """Clusters that may be forgotten if no job has anything there."""
        return [name for name, heard_s in self._heard_s.items() if now_s - heard_s > CLUSTER_FORGOTTEN_S]
