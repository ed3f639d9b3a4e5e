"""The answer to a loss, at once and on present facts: as many nodes as are missing, where they are near and cheap.

No search and no solver: the plan corrects it after. What it asks for keeps every limit that the plan keeps.
"""

import math
from collections.abc import Mapping

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.places import Distance, distance
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import NONE, Market, Nodes, Option, Present
from controlplane.planning.quotas import allowed, room_for, take, taken
from controlplane.planning.scoring import is_affordable, limit_of, risk_of, score
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile

_NEARNESS = {far: number for number, far in enumerate(Distance)}


def greedy(
    criteria: Criteria,
    profile: Profile,
    market: Market,
    present: Present,
    wanted: int,
    tuning: Tuning | None = None,
    last: Mapping[MachineKind, float] = NONE,
    lost: str = "",
) -> Nodes:
    """What to aim at: all that is held and on its way, and more of the same accelerator up to `wanted`.

    `last`: what is taken only where all else has no room, and of it the lowest number first. `lost`: the accelerator
    that there was, where nothing is left.
    """
    tuning = tuning or Tuning()
    nodes = present.committed()
    room = min(wanted, criteria.max_workers) - sum(nodes.values())
    accelerators = {choice.accelerator for choice in nodes} or ({lost} if lost else set())
    if room <= 0 or len(accelerators) != 1:
        return nodes
    on_demand = math.ceil(criteria.on_demand * (sum(nodes.values()) + room) - 1e-9)
    missing_on_demand = max(0, on_demand - sum(count for choice, count in nodes.items() if not choice.spot))
    room_by_kind = {False: min(room, missing_on_demand)}
    room_by_kind[True] = room - room_by_kind[False]
    quotas = market.quotas
    limits, used = allowed(quotas, present.held), taken(quotas, nodes)
    for option in _by_liking(market, present, accelerators.pop(), last, tuning):
        choice = option.choice
        more = min(
            room_by_kind[choice.spot],
            limit_of(market, present, choice) - nodes.get(choice, 0),
            room_for(quotas, choice, limits, used),
        )
        added = _affordable(criteria, profile, market, nodes, choice, max(0, int(more)), tuning)
        if added:
            nodes[choice] = nodes.get(choice, 0) + added
            take(used, quotas, choice, added)
            room_by_kind[choice.spot] -= added
    return nodes


def _by_liking(
    market: Market, present: Present, accelerator: str, last: Mapping[MachineKind, float], tuning: Tuning
) -> list[Option]:
    """Near what is there first, since a new zone costs egress; then cheap, risk included.

    Where nothing is there: near the cheapest that has room.
    """
    nodes = present.committed()
    zones = {choice.zone for choice in nodes}
    workers = sum(nodes.values())

    def liking(option: Option) -> tuple[float, int, float, MachineKind]:
        doubt = last.get(option.choice, -math.inf)
        near = min((_NEARNESS[distance(option.choice.zone, zone)] for zone in zones), default=0)
        return doubt, near, option.micro_usd_per_hour + risk_of(option, workers, tuning), option.choice

    options = [
        option
        for choice, option in market.options.items()
        if choice.accelerator == accelerator and limit_of(market, present, choice) > 0
    ]
    if not zones and options:
        zones = {min(options, key=liking).choice.zone}
    return sorted(options, key=liking)


def _affordable(
    criteria: Criteria,
    profile: Profile,
    market: Market,
    nodes: Nodes,
    choice: MachineKind,
    most: int,
    tuning: Tuning,
) -> int:
    """How many of these the cap on money an hour allows, egress included."""
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
