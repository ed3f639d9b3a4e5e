"""What a cloud says should be corrected in a cluster, told to people once."""

from collections.abc import Callable, Sequence

from controlplane.clouds.interface import ClusterInfo
from messages.events import FLEET, Event
from messages.ids import ClusterName


class Advice:
    def __init__(self, announce: Callable[[Event], None]) -> None:
        self._announce = announce
        self._told: dict[ClusterName, str] = {}

    def see(self, clusters: Sequence[ClusterInfo]) -> None:
        for cluster in clusters:
            known = self._told.get(cluster.name, "")
            self._told[cluster.name] = cluster.advice
            if cluster.advice and cluster.advice != known:
                text = f"cluster {cluster.name} needs attention"
                self._announce(Event(FLEET, "cluster_advice", text, cluster.advice, {"cluster": cluster.name}))
