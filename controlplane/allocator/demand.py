"""What a planned job wants. A job without a demand takes its nodes in the order of the fleet file."""

from dataclasses import dataclass

from controlplane.planning.criteria import Criteria, criteria_of
from controlplane.planning.market import CurrentCapacity, Market
from controlplane.planning.profiles import profile_of
from controlplane.throughput.profile import Profile
from messages.jobs import JobSpec


@dataclass(frozen=True, slots=True)
class Demand:
    criteria: Criteria
    profile: Profile


def demand_of(spec: JobSpec) -> Demand | None:
    """The demand in the job's file; None for a job that is not planned."""
    return Demand(criteria_of(spec), profile_of(spec)) if spec.capacity is not None else None


@dataclass(frozen=True, slots=True)
class Basis:
    """All inputs of a plan."""

    criteria: Criteria
    """Their `max_workers` is at most the number of nodes that the job may have now."""
    profile: Profile
    market: Market
    """Its limits are the nodes of each choice that may be requested now."""
    current: CurrentCapacity
