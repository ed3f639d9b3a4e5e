"""Tradewind's planner, and simple policies: the cheapest zone, round robin, one region."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from benchmarks.plans.markets import PROFILE
from controlplane.catalog.kinds import MachineKind
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, Market, Nodes, Option
from controlplane.planning.plan import plan
from controlplane.planning.tuning import Tuning
from messages.criteria import Objective

Policy = Callable[[Criteria, Market, Nodes], Nodes]
_QUIET: Final = Tuning(alternatives=0)


def ours(criteria: Criteria, market: Market, held: Nodes) -> Nodes:
    made = plan(criteria, PROFILE, market, CurrentCapacity(held=held), _QUIET)
    return made.placement


def cheapest_zone(criteria: Criteria, market: Market, held: Nodes) -> Nodes:
    """Fills the zones in order of the price per sample."""
    return _filled(_of_one_type(market, _worth), _wanted(criteria))


def round_robin(criteria: Criteria, market: Market, held: Nodes) -> Nodes:
    options = _of_one_type(market, _worth)
    nodes: dict[MachineKind, int] = {}
    while sum(nodes.values()) < _wanted(criteria):
        available = [option for option in options if nodes.get(option.choice, 0) < option.limit]
        if not available:
            break
        for option in available[: _wanted(criteria) - sum(nodes.values())]:
            nodes[option.choice] = nodes.get(option.choice, 0) + 1
    return nodes


def one_region(criteria: Criteria, market: Market, held: Nodes) -> Nodes:
    """The cheapest region with enough machines, otherwise the region with the most."""
    by_place: dict[tuple[str, str], list[Option]] = {}
    for option in sorted(market.options.values(), key=_worth):
        by_place.setdefault((option.choice.region, option.choice.accelerator), []).append(option)
    filled = [_filled(options, _wanted(criteria)) for options in by_place.values()]
    most = max((sum(nodes.values()) for nodes in filled), default=0)
    enough = [nodes for nodes in filled if sum(nodes.values()) == most]
    return min(enough, key=lambda nodes: _cost(market, nodes), default={})


POLICIES: Final[Mapping[str, Policy]] = {
    "ours": ours,
    "cheapest zone": cheapest_zone,
    "round robin": round_robin,
    "one region": one_region,
}


def _wanted(criteria: Criteria) -> int:
    return criteria.min_workers if criteria.objective is Objective.COST else criteria.max_workers


def _worth(option: Option) -> tuple[float, MachineKind]:
    return option.micro_usd_per_hour * PROFILE.compute[option.choice.accelerator].seconds_per_sample, option.choice


def _cost(market: Market, nodes: Nodes) -> float:
    return sum(_worth(market.options[choice])[0] * count for choice, count in nodes.items())


def _of_one_type(market: Market, key: Callable[[Option], tuple[float, MachineKind]]) -> list[Option]:
    """Options with the accelerator of the cheapest option, in order."""
    ordered = sorted(market.options.values(), key=key)
    return [option for option in ordered if option.choice.accelerator == ordered[0].choice.accelerator]


def _filled(options: Iterable[Option], wanted: int) -> dict[MachineKind, int]:
    nodes: dict[MachineKind, int] = {}
    for option in options:
        more = min(option.limit, wanted - sum(nodes.values()))
        if more > 0:
            nodes[option.choice] = more
    return nodes
