"""How much of the time the ranks on a node compute."""

from dataclasses import dataclass

from messages.ids import ClusterName

FRESH_S = 60.0


@dataclass(frozen=True, slots=True)
class NodeUse:
    cluster: ClusterName
    node: str
    share: float
    """Of the time that its ranks computed or waited for others, the part that they computed."""
    silent_s: float = 0.0
    """How long ago they said so."""
    fresh_s: float = FRESH_S
    """If they say nothing for longer it is not known how it went on."""
