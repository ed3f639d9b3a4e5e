"""What a planned job wants of the market. A job without a demand takes its nodes in the fleet file's order."""

from dataclasses import dataclass

from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Present
from controlplane.throughput.profile import Profile


@dataclass(frozen=True, slots=True)
class Demand:
    criteria: Criteria
    profile: Profile


@dataclass(frozen=True, slots=True)
class Basis:
    """All that a plan is made from."""

    criteria: Criteria
    """With no more workers than may be had now."""
    profile: Profile
    market: Market
    """With no more nodes of each choice than are to be asked of it now."""
    present: Present
