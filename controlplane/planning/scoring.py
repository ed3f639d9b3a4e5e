"""The score of a placement: its speed, its cost, and the price of its risk.

A spot node with the price p and an average life of L is lost once in L. A loss costs the pause of all n nodes and
the time until a replacement comes: p × (n × pause + boot / availability) / L. Losses of one zone may come together,
so nodes of one zone above a share cost p × (loss of a zone) / L more. So a zone that often preempts machines must be
cheaper to be chosen, and spreading over zones pays only if their prices are similar.
"""

import math
from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from controlplane.catalog.kinds import MachineKind
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, Market, Nodes, Option
from controlplane.planning.quotas import allowed, taken
from controlplane.planning.step_times import Floats
from controlplane.planning.tuning import Tuning
from controlplane.throughput.estimate import Estimate, Impossible, estimate
from controlplane.throughput.placement import placement_of
from controlplane.throughput.profile import Profile
from messages.criteria import Objective

SAME = 1e-9
"""Relative difference below which two figures are equal."""
SortKey = tuple[float, ...]
"""Figures of a placement in order of importance; lower is better."""


class Score(Struct, frozen=True, kw_only=True):
    workers: int
    estimate: Estimate
    risk_micro_usd_per_hour: float
    is_assumed: bool = False
    """The time of a step is not known: speed, egress and cost of a step come from an assumed profile."""

    @property
    def machines_per_node(self) -> float:
        """Micro-dollars an hour for one node. All nodes of a job have the same number of GPUs."""
        return self.estimate.machines_micro_usd_per_hour / self.workers

    @property
    def weighed_per_hour(self) -> float:
        """Micro-dollars an hour with the price of risk."""
        return self.estimate.micro_usd_per_hour + self.risk_micro_usd_per_hour


def score(profile: Profile, market: Market, nodes: Nodes, tuning: Tuning) -> Score | None:
    """The score of a placement; None if the job cannot run on it."""
    chosen = [(market.options[choice], count) for choice, count in nodes.items() if count]
    if not chosen:
        return None
    found = estimate(profile, placement_of(option.group(count) for option, count in chosen), market.links)
    if isinstance(found, Impossible):
        return None
    workers = sum(count for _, count in chosen)
    risk = sum(count * risk_of(option, workers, tuning) for option, count in chosen)
    risk += _crowding(chosen, workers, market, tuning)
    return Score(workers=workers, estimate=found, risk_micro_usd_per_hour=risk, is_assumed=profile.is_assumed)


def risk_of(option: Option, workers: int, tuning: Tuning) -> float:
    """Micro-dollars an hour for the risk of one node in a world of so many workers."""
    fixed, each = risk_parts(option, tuning)
    return fixed + each * workers


def risk_parts(option: Option, tuning: Tuning) -> tuple[float, float]:
    """The fixed risk of one node, and its risk for each worker of the world; both in micro-dollars an hour."""
    if not option.choice.spot:
        return 0.0, 0.0
    per_life = option.micro_usd_per_hour / option.lifetime_s
    return per_life * option.boot_s / option.availability, per_life * tuning.pause_s


def crowd_price(options: Iterable[Option], tuning: Tuning) -> float:
    """Micro-dollars an hour of each spot node above the share, in a zone with these options."""
    spot = (each for each in options if each.choice.spot)
    return min((each.micro_usd_per_hour * tuning.zone_loss_s / each.lifetime_s for each in spot), default=0.0)


def uncrowded(workers: int, tuning: Tuning) -> int:
    """Spot nodes of one zone that have no crowd price."""
    return math.ceil(workers * tuning.zone_share)


def may_spread(market: Market, accelerator: str) -> bool:
    return len({choice.zone for choice in market.options if choice.accelerator == accelerator}) > 1


def _crowding(chosen: list[tuple[Option, int]], workers: int, market: Market, tuning: Tuning) -> float:
    accelerator = chosen[0][0].choice.accelerator
    if not may_spread(market, accelerator):
        return 0.0
    spot_nodes: dict[str, int] = {}
    for option, count in chosen:
        if option.choice.spot:
            spot_nodes[option.choice.zone] = spot_nodes.get(option.choice.zone, 0) + count
    free = uncrowded(workers, tuning)
    return sum(
        (count - free) * crowd_price(_options_in(market, zone, accelerator), tuning)
        for zone, count in spot_nodes.items()
        if count > free
    )


def _options_in(market: Market, zone: str, accelerator: str) -> list[Option]:
    return [
        option for choice, option in market.options.items() if (choice.zone, choice.accelerator) == (zone, accelerator)
    ]


def sort_key(found: Score, criteria: Criteria) -> SortKey:
    keys = sort_keys_of(criteria, np.array([found.estimate.step_s]), np.array([found.weighed_per_hour]))
    return tuple(keys[:, 0].tolist())


def sort_keys_of(criteria: Criteria, step_s: Floats, weighed_per_hour: Floats) -> Floats:
    """The sort keys as columns; rows: whether the placement is late, the first objective, the second objective."""
    in_time = np.zeros_like(step_s)
    by_cost = np.stack([in_time, weighed_per_hour * step_s, step_s])
    by_speed = np.stack([in_time, step_s, weighed_per_hour])
    match criteria.objective:
        case Objective.COST:
            return by_cost
        case Objective.THROUGHPUT:
            return by_speed
        case Objective.DEADLINE:
            late = 1 / step_s < criteria.min_steps_per_s * (1 - SAME)
            by_speed[0] = 1.0
            return np.where(late, by_speed, by_cost)


def is_better(one: SortKey, other: SortKey) -> bool:
    for mine, theirs in zip(one, other, strict=True):
        if not math.isclose(mine, theirs, rel_tol=SAME):
            return mine < theirs
    return False


def gain(new: Score, old: Score, criteria: Criteria) -> float:
    """The relative gain of the new score in the first figure that differs; negative if it is worse."""
    one, other = sort_key(new, criteria), sort_key(old, criteria)
    for mine, theirs in zip(one, other, strict=True):
        if not math.isclose(mine, theirs, rel_tol=SAME):
            return math.copysign(math.inf, theirs - mine) if not mine or not theirs else theirs / mine - 1
    return 0.0


def breach(criteria: Criteria, market: Market, current: CurrentCapacity, nodes: Nodes) -> str:
    """Why these nodes violate a limit other than money; empty if they do not.

    Held nodes exist: limits of zones and quotas do not lower their number, they only prevent more.
    """
    used = {choice: count for choice, count in nodes.items() if count}
    workers = sum(used.values())
    if len({choice.accelerator for choice in used}) > 1:
        return "a world has one type of accelerator"
    if workers > criteria.max_workers:
        return f"{workers} workers, {criteria.max_workers} at most"
    if workers < criteria.min_workers:
        return f"{workers} workers, {criteria.min_workers} at least"
    for choice, count in used.items():
        if choice not in market.options:
            return f"{choice.machine_type} in {choice.zone} is not allowed or not offered"
        if count > limit_of(market, current, choice):
            return f"{count} nodes of {choice.machine_type} in {choice.zone}, more than it has"
    limits = allowed(market.quotas, current.held)
    for key, amount in taken(market.quotas, used).items():
        if amount > limits.get(key, math.inf):
            return f"{amount} of quota {key.metric} in {key.scope}, which allows {limits[key]}"
    return ""


def limit_of(market: Market, current: CurrentCapacity, choice: MachineKind) -> int:
    held = current.held.get(choice, 0)
    return held if choice in current.stocked_out else max(held, market.options[choice].limit)


def how_many(room: float, each: int) -> float:
    """How many fit into the room; infinite if each needs none, or if the room is infinite."""
    if room < 0:
        return 0
    return room // each if each and math.isfinite(room) else math.inf


def is_affordable(criteria: Criteria, found: Score) -> bool:
    limit = criteria.max_micro_usd_per_hour
    return limit is None or found.estimate.micro_usd_per_hour <= limit
