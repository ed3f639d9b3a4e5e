"""The number of nodes of each option, for a ring and a number of nodes: builds the program and reads its solution."""

from collections.abc import Sequence

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MICRO_PER_USD
from controlplane.catalog.places import continent_of, region_of
from controlplane.planning.bounds import Bound
from controlplane.planning.criteria import SECONDS_PER_HOUR, Criteria
from controlplane.planning.integer_program import INFINITY, Program, new_program, solve
from controlplane.planning.option_arrays import Field
from controlplane.planning.scoring import uncrowded
from controlplane.planning.tuning import Tuning

TOLERANCE_MICRO_USD = 2
"""The most by which the solver exceeds a cap."""


def fill(
    field: Field, bound: Bound, entry: int, criteria: Criteria, tuning: Tuning, spare_micro_usd: int = 0
) -> tuple[dict[MachineKind, int] | None, bool]:
    """The nodes for an entry of the bound, or None if none were found; and whether it is proven that none are better.

    The solver may exceed the cap slightly; with `spare_micro_usd=TOLERANCE_MICRO_USD` it does not.
    """
    workers, on_demand = int(bound.nodes[entry]), int(bound.on_demand[entry])
    hourly = float(field.paces.gib_over_a_link(bound.nodes[entry]) * SECONDS_PER_HOUR / bound.step_s[entry])
    program = new_program()
    nodes = _nodes(program, field, bound, workers, on_demand)
    money = {column: field.price[number] / MICRO_PER_USD for number, column in nodes.items()}
    fixed_usd = bound.ring.micro_usd_per_gib * hourly / MICRO_PER_USD
    if bound.ring.is_open:
        money |= _used(program, field, bound, nodes, hourly)
    else:
        _all_used(program, field, bound, nodes)
    _crowds(program, field, nodes, uncrowded(workers, tuning))
    if criteria.max_micro_usd_per_hour is not None:
        cap = (criteria.max_micro_usd_per_hour - spare_micro_usd) / MICRO_PER_USD
        program.row(-INFINITY, money, cap - fixed_usd)
    values, is_proven = solve(program)
    if values is None:
        return None, is_proven
    counts = {field.options[number].choice: round(values[column]) for number, column in nodes.items()}
    return {choice: count for choice, count in counts.items() if count}, is_proven


def _nodes(program: Program, field: Field, bound: Bound, workers: int, on_demand: int) -> dict[int, int]:
    """Add the columns of nodes, by number of the option, with the rows of their counts and quotas."""
    weights = field.price + field.risk + workers * field.risk_per_worker
    nodes = {
        int(number): program.column(weights[number] / MICRO_PER_USD, float(least), float(field.most[number]))
        for number, least in zip(bound.numbers, bound.least, strict=True)
    }
    for is_spot, wanted in ((True, workers - on_demand), (False, on_demand)):
        kind = {column: 1.0 for number, column in nodes.items() if field.spot[number] == is_spot}
        if kind:
            program.row(wanted, kind, wanted)
    for quota in field.quotas:
        shared = {nodes[number]: float(need) for number, need in quota.needs.items() if number in nodes}
        if shared:
            program.row(-INFINITY, shared, quota.limit)
    return nodes


def _all_used(program: Program, field: Field, bound: Bound, nodes: dict[int, int]) -> None:
    for zone in bound.ring.zones:
        columns = _in_zone(field, nodes, zone)
        if len(columns) > 1:
            program.row(1, dict.fromkeys(columns, 1.0), INFINITY)


def _used(program: Program, field: Field, bound: Bound, nodes: dict[int, int], hourly: float) -> dict[int, float]:
    """Add switches for used zones and regions, and return the cost of each."""
    ring = bound.ring
    zone_usd = ring.micro_usd_per_zone * hourly / MICRO_PER_USD
    regions = {
        region: program.column(extra * hourly / MICRO_PER_USD, 0, 1) for region, extra in ring.extra_by_region.items()
    }
    costs = {column: program.costs[column] for column in regions.values()}
    in_region: dict[str, list[int]] = {region: [] for region in regions}
    for zone in ring.zones:
        columns = _in_zone(field, nodes, zone)
        most = sum(program.upper[column] for column in columns)
        switch = program.column(zone_usd, 0, 1)
        costs[switch] = zone_usd
        program.row(-INFINITY, {**dict.fromkeys(columns, 1.0), switch: -most}, 0)
        program.row(-INFINITY, {switch: 1.0, regions[region_of(zone)]: -1.0}, 0)
        in_region[region_of(zone)] += columns
    for region, columns in in_region.items():
        program.row(0, {**dict.fromkeys(columns, 1.0), regions[region]: -1.0}, INFINITY)
    for continent in ring.continents:
        here = [column for region, column in regions.items() if continent_of(region) == continent]
        program.row(2 if len(ring.continents) == 1 else 1, dict.fromkeys(here, 1.0), INFINITY)
    return costs


def _crowds(program: Program, field: Field, nodes: dict[int, int], free: int) -> None:
    for zone, price in field.crowd_price.items():
        spot = _in_zone(field, nodes, zone, spot_only=True)
        if spot and price > 0:
            above = program.column(price / MICRO_PER_USD, 0, INFINITY, integer=False)
            program.row(-INFINITY, {**dict.fromkeys(spot, 1.0), above: -1.0}, free)


def _in_zone(field: Field, nodes: dict[int, int], zone: str, *, spot_only: bool = False) -> Sequence[int]:
    return [
        column
        for number, column in nodes.items()
        if field.options[number].choice.zone == zone and (field.spot[number] or not spot_only)
    ]
