"""The use of a node: how much of the time its ranks compute."""

from dataclasses import dataclass

from messages.ids import ClusterName

FRESH_S = 60.0


@dataclass(frozen=True, slots=True)
class NodeUse:
    cluster: ClusterName
    node: str
    share: float
    """The share of computing in the time that its ranks computed or waited for others."""
    silent_s: float = 0.0
    """Seconds since the report."""
    fresh_s: float = FRESH_S
    """Seconds of silence after which the use is not known."""
