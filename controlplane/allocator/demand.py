"""What a planned job wants of the market. A job without a demand takes its nodes in the fleet file's order."""

from dataclasses import dataclass

from controlplane.planning.criteria import Criteria, criteria_of
from controlplane.planning.market import Market, Present
from controlplane.planning.profiles import profile_of
from controlplane.throughput.profile import Profile
from messages.jobs import JobSpec


@dataclass(frozen=True, slots=True)
class Demand:
    criteria: Criteria
    profile: Profile


def demand_of(spec: JobSpec) -> Demand | None:
    """As the job's file says; None for a job that is not planned."""
    return Demand(criteria_of(spec), profile_of(spec)) if spec.capacity is not None else None


@dataclass(frozen=True, slots=True)
class Basis:
    """All that a plan is made from."""

    criteria: Criteria
    """With no more workers than may be had now."""
    profile: Profile
    market: Market
    """With no more nodes of each choice than are to be asked of it now."""
    present: Present
