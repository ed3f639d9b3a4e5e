"""The criteria of a job's owner, in the units of the plan."""

from msgspec import Struct, structs

from controlplane.catalog.accelerators import matching
from controlplane.catalog.money import MicroDollars, micro_of
from messages.criteria import Capacity, Objective
from messages.jobs import JobSpec

SECONDS_PER_HOUR = 3600


class Criteria(Struct, frozen=True, kw_only=True):
    min_workers: int = 1
    max_workers: int = 1
    gpus_per_worker: int = 1
    """A worker uses all GPUs of its node, one rank each, so only machines with this number fit."""
    objective: Objective = Objective.COST
    min_steps_per_s: float = 0.0
    """The speed that the deadline requires."""
    max_micro_usd_per_hour: MicroDollars | None = None
    max_micro_usd_total: MicroDollars | None = None
    on_demand: float = 0.0
    accelerators: frozenset[str] = frozenset()
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    machine_types: tuple[str, ...] = ()
    """Like `accelerators`, `regions` and `zones`: empty allows all."""
    min_utilisation: float | None = None
    """Share of computing in the time of computing and waiting, below which a node is dismissed. The plan ignores it."""

    def allows_zone(self, zone: str, region: str) -> bool:
        return (not self.zones or zone in self.zones) and (
            not self.regions or any(_is_in(zone, region, each) for each in self.regions)
        )

    def allows_accelerator(self, name: str) -> bool:
        return not self.accelerators or name in self.accelerators

    def allows_machine_type(self, name: str) -> bool:
        return not self.machine_types or name in self.machine_types


def criteria_of(spec: JobSpec) -> Criteria:
    """The criteria in the job's file, with its whole deadline left."""
    capacity = spec.capacity or Capacity()
    return Criteria(
        min_workers=spec.workers.least,
        max_workers=spec.workers.fitting(spec.workers.max),
        gpus_per_worker=spec.workers.ranks,
        objective=capacity.objective,
        min_steps_per_s=_steps_per_s(capacity),
        max_micro_usd_per_hour=_micro(capacity.max_usd_per_hour),
        max_micro_usd_total=_micro(capacity.max_usd_total),
        on_demand=capacity.on_demand,
        accelerators=frozenset(each.name for text in capacity.accelerators for each in matching(text)),
        regions=capacity.regions,
        zones=capacity.zones,
        machine_types=capacity.machine_types,
        min_utilisation=capacity.min_utilisation,
    )


def criteria_left(
    criteria: Criteria,
    *,
    spot_only: bool,
    micro_usd_total: MicroDollars | None = None,
    steps_left: int | None = None,
    seconds_left: float | None = None,
) -> Criteria:
    """The criteria in the job's file, adjusted to its budget and the rest of its deadline."""
    total = criteria.max_micro_usd_total if micro_usd_total is None else micro_usd_total
    least = criteria.min_steps_per_s
    if criteria.objective is Objective.DEADLINE and steps_left is not None and seconds_left is not None:
        least = steps_left / seconds_left if seconds_left > 0 else float("inf")
    on_demand = 0.0 if spot_only else criteria.on_demand
    return structs.replace(criteria, max_micro_usd_total=total, min_steps_per_s=least, on_demand=on_demand)


def _steps_per_s(capacity: Capacity) -> float:
    if capacity.objective is not Objective.DEADLINE or capacity.deadline is None:
        return 0.0
    return capacity.deadline.steps / (capacity.deadline.hours * SECONDS_PER_HOUR)


def _micro(usd: float | None) -> MicroDollars | None:
    return None if usd is None else micro_of(usd)


def _is_in(zone: str, region: str, wanted: str) -> bool:
    """Report whether the zone is in the wanted region; `us-` means all zones that begin with it."""
    return region == wanted or (wanted.endswith("-") and zone.startswith(wanted))
