"""Criteria of a job's owner: where it may train, what it may cost, and what its steps need."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

Usd = Annotated[float, Meta(gt=0, le=1_000_000_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,62}\Z", description="letters, digits and '-'")]
Labels = Annotated[tuple[Label, ...], Meta(max_length=1000)]
Problem = tuple[str, str]


class Objective(StrEnum):
    COST = "cost"
    """The fewest dollars for a step."""
    THROUGHPUT = "throughput"
    """The most steps in a second."""
    DEADLINE = "deadline"
    """The fewest dollars for a step among plans that meet the deadline."""


class WhenSpent(StrEnum):
    """What happens when `max_usd_total` is reached."""

    PAUSE = "pause"
    ON_DEMAND_OFF = "on_demand_off"
    STOP = "stop"


class Deadline(Struct, frozen=True, forbid_unknown_fields=True):
    hours: Annotated[float, Meta(gt=0, le=100_000)]
    """Hours from the job's submission."""
    steps: Annotated[int, Meta(ge=1, le=10**12)]


class Capacity(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Criteria for machines. Empty lists allow everything."""

    objective: Objective = Objective.COST
    deadline: Deadline | None = None
    max_usd_per_hour: Usd | None = None
    """Limit on the cost of machines and egress together."""
    max_usd_total: Usd | None = None
    when_spent: WhenSpent | None = None
    """Default: `pause`, if `max_usd_total` is given."""
    accelerators: Labels = ()
    """Names as in `tradewind offers`, or GKE's. A world uses one accelerator at a time."""
    regions: Labels = ()
    zones: Labels = ()
    machine_types: Labels = ()
    on_demand: Share = 0.0
    """Share of the workers, rounded up, on machines on demand; the others are on spot machines."""
    idle_timeout_s: Annotated[float, Meta(ge=10, le=1e7)] = 600.0
    """Seconds after which a machine that the job neither uses nor wants is given back."""
    min_utilisation: Annotated[float, Meta(gt=0, le=1)] | None = None
    """A machine is given back if the job, for `idle_timeout_s`, computes in less than this share of the time in which
    it computes or waits for others. Reading data and updating the model count as neither.
    """


class StepTime(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The time of a step of one replica on one accelerator."""

    seconds_per_sample: Annotated[float, Meta(gt=0, le=1e7)]
    seconds_per_step: Annotated[float, Meta(ge=0, le=1e7)] = 0.0
    """The time that does not depend on the samples."""


class StepProfile(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a step needs, as measured elsewhere. The global batch is the hyperparameter of that name."""

    gradient_bytes: Annotated[int, Meta(ge=0, le=10**15)]
    compute: dict[Label, StepTime] = field(default_factory=dict)
    """Times by accelerator. The job uses no other accelerators."""
    overlap: Share = 0.0
    """The part of the communication that overlaps with the computation."""


def contradictory_criteria(capacity: Capacity | None, profile: StepProfile | None, *, has_batch: bool) -> list[Problem]:
    """Returns contradictions that do not depend on offers."""
    found: list[Problem] = []
    if capacity is not None:
        found += _criteria(capacity)
        found += _deadline(capacity)
    if profile is not None and not profile.compute:
        found.append(("profile.compute", "is empty; give the seconds of at least one accelerator"))
    if profile is not None and not has_batch:
        text = "is missing; a profile's seconds per sample mean nothing without it"
        found.append(("hyperparameters.global_batch", text))
    return found


def _criteria(capacity: Capacity) -> list[Problem]:
    found: list[Problem] = []
    if capacity.when_spent is not None and capacity.max_usd_total is None:
        text = f"is {capacity.when_spent.value}, but capacity.max_usd_total is missing: there is nothing to spend up"
        found.append(("capacity.when_spent", text))
    if capacity.when_spent is WhenSpent.ON_DEMAND_OFF and capacity.on_demand == 0:
        text = "is on_demand_off, but capacity.on_demand is 0; give a share above 0, or choose pause or stop"
        found.append(("capacity.when_spent", text))
    for place, zone in enumerate(capacity.zones):
        if capacity.regions and not any(zone.startswith(region.removesuffix("-")) for region in capacity.regions):
            text = f"is {zone}, which is in none of capacity.regions: {', '.join(capacity.regions)}"
            found.append((f"capacity.zones[{place}]", text))
    return found


def _deadline(capacity: Capacity) -> list[Problem]:
    found: list[Problem] = []
    wants = capacity.objective is Objective.DEADLINE
    if wants and capacity.deadline is None:
        found.append(("capacity.deadline", "is missing; objective deadline needs `deadline: {hours: …, steps: …}`"))
    if not wants and capacity.deadline is not None:
        text = f"is given, but capacity.objective is {capacity.objective.value}; make it deadline, or leave this out"
        found.append(("capacity.deadline", text))
    return found
