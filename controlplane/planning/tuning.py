"""The numbers by which the plan weighs risk against money and change against rest. Chosen, not fitted to a trace."""

from msgspec import Struct


class Tuning(Struct, frozen=True):
    pause_s: float = 30.0
    """What a lost or a joining node costs the whole world."""
    zone_loss_s: float = 1800.0
    """What the loss of a whole zone costs each of the nodes above `zone_share`."""
    zone_share: float = 0.5
    """Of the workers, in one zone, where more than one zone is allowed; more has its price."""
    threshold: float = 0.1
    """Nothing that runs is given up for a smaller gain than this part."""
    horizon_s: float = 86_400.0
    """Nothing is believed to last longer."""
    alternatives: int = 4
    """How many that lost are shown."""
    solves: int = 40
    """Programs that are solved at most for one plan; then the best so far is taken, and it is said."""
