"""What the owner of a job allows and wants, in the units of the plan."""

from msgspec import Struct

from controlplane.catalog.accelerators import matching
from controlplane.catalog.money import MicroDollars, micro_of
from messages.criteria import Capacity, Objective
from messages.jobs import JobSpec

SECONDS_PER_HOUR = 3600


class Criteria(Struct, frozen=True, kw_only=True):
    min_workers: int = 1
    max_workers: int = 1
    gpus_per_worker: int = 1
    """A worker takes all GPUs of its node, one rank each: other machines are no use to it."""
    objective: Objective = Objective.COST
    min_steps_per_s: float = 0.0
    """What the deadline asks for."""
    max_micro_usd_per_hour: MicroDollars | None = None
    max_micro_usd_total: MicroDollars | None = None
    on_demand: float = 0.0
    accelerators: frozenset[str] = frozenset()
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    machine_types: tuple[str, ...] = ()
    """Empty allows everything."""
    min_utilisation: float | None = None
    """Nodes on which it computes less of what it computes and waits are given up; for the plan it means nothing."""

    def allows_zone(self, zone: str, region: str) -> bool:
        return (not self.zones or zone in self.zones) and (
            not self.regions or any(_is_in(zone, region, each) for each in self.regions)
        )

    def allows_accelerator(self, name: str) -> bool:
        return not self.accelerators or name in self.accelerators

    def allows_machine_type(self, name: str) -> bool:
        return not self.machine_types or name in self.machine_types


def criteria_of(spec: JobSpec, *, steps_left: int | None = None, hours_left: float | None = None) -> Criteria:
    """What is left of a deadline is the whole of it, unless told otherwise."""
    capacity = spec.capacity or Capacity()
    return Criteria(
        min_workers=spec.workers.least,
        max_workers=spec.workers.fitting(spec.workers.max),
        gpus_per_worker=spec.workers.ranks,
        objective=capacity.objective,
        min_steps_per_s=_steps_per_s(capacity, steps_left, hours_left),
        max_micro_usd_per_hour=_micro(capacity.max_usd_per_hour),
        max_micro_usd_total=_micro(capacity.max_usd_total),
        on_demand=capacity.on_demand,
        accelerators=frozenset(each.name for text in capacity.accelerators for each in matching(text)),
        regions=capacity.regions,
        zones=capacity.zones,
        machine_types=capacity.machine_types,
        min_utilisation=capacity.min_utilisation,
    )


def _steps_per_s(capacity: Capacity, steps_left: int | None, hours_left: float | None) -> float:
    if capacity.objective is not Objective.DEADLINE or capacity.deadline is None:
        return 0.0
    steps = capacity.deadline.steps if steps_left is None else steps_left
    hours = capacity.deadline.hours if hours_left is None else hours_left
    return steps / (hours * SECONDS_PER_HOUR) if hours > 0 else float("inf")


def _micro(usd: float | None) -> MicroDollars | None:
    return None if usd is None else micro_of(usd)


def _is_in(zone: str, region: str, wanted: str) -> bool:
    """`us-` is all that begin so."""
    return region == wanted or (wanted.endswith("-") and zone.startswith(wanted))
