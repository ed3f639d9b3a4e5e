"""What a plan that was made, other criteria and a measured profile teach."""

from dataclasses import replace

from controlplane.allocator.events import Planned
from controlplane.allocator.state import Allocator
from controlplane.planning.criteria import Criteria
from controlplane.throughput.profile import Profile


def learn_criteria(allocator: Allocator, criteria: Criteria) -> Allocator:
    if allocator.demand is None:
        return allocator
    return replace(allocator, demand=replace(allocator.demand, criteria=criteria))


def learn_profile(allocator: Allocator, profile: Profile) -> Allocator:
    if allocator.demand is None:
        return allocator
    plans = replace(allocator.plans, not_before_s=None)
    return replace(allocator, demand=replace(allocator.demand, profile=profile), plans=plans)


def learn_plan(allocator: Allocator, event: Planned) -> Allocator:
    plans = allocator.plans
    if plans.asked is None or event.number != plans.number:
        return allocator
    return replace(allocator, plans=replace(plans, asked=None, plan=event.plan, basis=plans.asked))
