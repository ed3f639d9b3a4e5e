"""The immediate answer to a loss: replaces the missing nodes by near and cheap ones, from current facts.

It needs no search and no solver; the next plan corrects it. It keeps every limit that the plan keeps.
"""

import math
from collections.abc import Mapping

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.places import Distance, distance
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import NONE, CurrentCapacity, Market, Nodes, Option
from controlplane.planning.quotas import allowed, room_for, take, taken
from controlplane.planning.scoring import is_affordable, limit_of, risk_of, score
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile

_NEARNESS = {far: number for number, far in enumerate(Distance)}


def greedy(
    criteria: Criteria,
    profile: Profile,
    market: Market,
    current: CurrentCapacity,
    wanted: int,
    tuning: Tuning | None = None,
    last: Mapping[MachineKind, float] = NONE,
    lost: str = "",
) -> Nodes:
    """The targets: all nodes that are held or coming, and more of the same accelerator up to `wanted`.

    `last`: choices to use only when all others are full, the lowest number first. `lost`: the accelerator of the lost
    nodes, if no node is left.
    """
    tuning = tuning or Tuning()
    nodes = current.committed()
    room = min(wanted, criteria.max_workers) - sum(nodes.values())
    accelerators = {choice.accelerator for choice in nodes} or ({lost} if lost else set())
    if room <= 0 or len(accelerators) != 1:
        return nodes
    on_demand = math.ceil(criteria.on_demand * (sum(nodes.values()) + room) - 1e-9)
    missing_on_demand = max(0, on_demand - sum(count for choice, count in nodes.items() if not choice.spot))
    room_by_kind = {False: min(room, missing_on_demand)}
    room_by_kind[True] = room - room_by_kind[False]
    quotas = market.quotas
    limits, used = allowed(quotas, current.held), taken(quotas, nodes)
    for option in _by_preference(market, current, accelerators.pop(), last, tuning):
        choice = option.choice
        more = min(
            room_by_kind[choice.spot],
            limit_of(market, current, choice) - nodes.get(choice, 0),
            room_for(quotas, choice, limits, used),
        )
        added = _affordable(criteria, profile, market, nodes, choice, max(0, int(more)), tuning)
        if added:
            nodes[choice] = nodes.get(choice, 0) + added
            take(used, quotas, choice, added)
            room_by_kind[choice.spot] -= added
    return nodes


def _by_preference(
    market: Market, current: CurrentCapacity, accelerator: str, last: Mapping[MachineKind, float], tuning: Tuning
) -> list[Option]:
    """Options near the current nodes first, since a new zone costs egress; then cheap ones, with risk.

    Without nodes: options near the cheapest one that has room.
    """
    nodes = current.committed()
    zones = {choice.zone for choice in nodes}
    workers = sum(nodes.values())

    def preference(option: Option) -> tuple[float, int, float, MachineKind]:
        doubt = last.get(option.choice, -math.inf)
        near = min((_NEARNESS[distance(option.choice.zone, zone)] for zone in zones), default=0)
        return doubt, near, option.micro_usd_per_hour + risk_of(option, workers, tuning), option.choice

    options = [
        option
        for choice, option in market.options.items()
        if choice.accelerator == accelerator and limit_of(market, current, choice) > 0
    ]
    if not zones and options:
        zones = {min(options, key=preference).choice.zone}
    return sorted(options, key=preference)


def _affordable(
    criteria: Criteria,
    profile: Profile,
    market: Market,
    nodes: Nodes,
    choice: MachineKind,
    most: int,
    tuning: Tuning,
) -> int:
    """How many of these nodes the cap on money an hour allows, with egress."""
    if criteria.max_micro_usd_per_hour is None or most == 0:
        return most
    fits, too_many = 0, most + 1
    while fits + 1 < too_many:
        tried = (fits + too_many) // 2 if too_many <= most else most
        found = score(profile, market, {**nodes, choice: nodes.get(choice, 0) + tried}, tuning)
        if found is not None and is_affordable(criteria, found):
            fits = tried
        else:
            too_many = tried
    return fits
