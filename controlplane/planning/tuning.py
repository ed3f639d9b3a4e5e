"""The numbers by which the plan weighs risk against money and change against stability. Chosen, not fitted."""

from msgspec import Struct


class Tuning(Struct, frozen=True):
    pause_s: float = 30.0
    """Seconds that a lost or joining node costs the whole world."""
    zone_loss_s: float = 1800.0
    """Seconds that the loss of a zone costs each of its nodes above `zone_share`."""
    zone_share: float = 0.5
    """Share of the workers in one zone above which nodes have a crowd price, if several zones are allowed."""
    threshold: float = 0.1
    """The least relative gain for which running nodes are given up."""
    horizon_s: float = 86_400.0
    """The longest expected life of a node, in seconds."""
    alternatives: int = 4
    """Number of rejected placements that are shown."""
    solves: int = 40
    """The most programs that one search solves; then the best so far is used and marked as not proven.

    A plan makes up to three searches: one over all placements, and two that keep or remove current nodes. Alternatives
    are extra.
    """
