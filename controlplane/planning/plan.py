"""The plan: computed from the current nodes, never from an earlier plan.

The plan compares four ranges, from the smallest change to the largest: keep, grow, shrink, move. A larger change is
chosen only if it pays. More nodes pay if their gain over their expected life exceeds the pause of their joining. A
change that gives up running nodes must also gain more than a threshold, so that fluctuating prices move nothing.
Without nodes, the best placement is chosen.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, structs

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import QuotaKey
from controlplane.planning import explanations
from controlplane.planning.criteria import Criteria
from controlplane.planning.first_step import first_step
from controlplane.planning.market import CurrentCapacity, Market, Nodes
from controlplane.planning.option_arrays import Range
from controlplane.planning.profiles import until_measured
from controlplane.planning.quotas import limiting, too_small_for
from controlplane.planning.scoring import Score, breach, gain, how_many, is_affordable, limit_of, score
from controlplane.planning.search import Candidate, Search
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile
from messages.criteria import Objective


class Change(StrEnum):
    BEGIN = "begin"
    KEEP = "keep"
    GROW = "grow"
    SHRINK = "shrink"
    MOVE = "move"
    WAIT = "wait"
    """The needed nodes are not available: current nodes stay as far as the caps allow, and none are requested."""


class Alternative(Struct, frozen=True):
    nodes: Nodes
    score: Score
    why_not: str


class Plan(Struct, frozen=True, kw_only=True):
    placement: Nodes
    """The final placement: how many nodes of each kind."""
    ask: Nodes
    """Targets for now: how many nodes of each kind the job should have in total, not in addition. It fits beside all
    present and requested nodes, so it may differ from `placement` until some of them are gone."""
    change: Change
    score: Score | None
    why: str
    alternatives: tuple[Alternative, ...] = ()
    proven: bool = True
    """Whether the search proved that no other placement is better; if the job waits, that none exists."""
    limited_by: tuple[QuotaKey, ...] = ()
    """Quotas that leave no room for another node, if the job may have more."""


def plan(
    criteria: Criteria,
    profile: Profile,
    market: Market,
    current: CurrentCapacity | None = None,
    tuning: Tuning | None = None,
) -> Plan:
    wanted, criteria = criteria, until_measured(criteria, profile)
    made = _planned(criteria, profile, market, current or CurrentCapacity(), tuning or Tuning())
    return made if criteria == wanted else structs.replace(made, why=f"{made.why}; {explanations.UNMEASURED}")


def _planned(criteria: Criteria, profile: Profile, market: Market, current: CurrentCapacity, tuning: Tuning) -> Plan:
    search = Search(criteria, profile, market, current, tuning)
    anything = search.best(anywhere(search), alternatives=tuning.alternatives)
    chosen, change, why = choose(search, anything.best)
    if chosen is None:
        left = _within_the_caps(search)
        limited_by = too_small_for(criteria.min_workers, market, current)
        return Plan(
            placement=left,
            ask=left,
            change=Change.WAIT,
            score=None,
            why=explanations.waits(criteria, market, current, limited_by, is_proven=anything.proven),
            proven=anything.proven,
            limited_by=limited_by,
        )
    egress = max(chosen.score.estimate.egress_micro_usd_per_hour, _egress_beside(search, chosen.nodes))
    others = [each for each in (anything.best, *anything.others) if each is not None and each.nodes != chosen.nodes]
    if profile.is_assumed and criteria.objective is Objective.COST:
        others.sort(key=lambda each: each.score.machines_per_node)
    return Plan(
        placement=chosen.nodes,
        ask=first_step(criteria, market, current, chosen.nodes, egress, may_stay=_as_it_is(search) is not None),
        change=change,
        score=chosen.score,
        why=why,
        alternatives=tuple(Alternative(each.nodes, each.score, _why_not(each, chosen, criteria)) for each in others),
        proven=anything.proven,
        limited_by=limiting(market, current, chosen.nodes) if chosen.score.workers < criteria.max_workers else (),
    )


def _why_not(other: Candidate, chosen: Candidate, criteria: Criteria) -> str:
    if chosen.score.is_assumed:
        return explanations.differs(other.nodes, other.score, chosen.nodes, chosen.score)
    return explanations.loses(other.score, chosen.score, criteria)


_NONE: Mapping[MachineKind, int] = MappingProxyType({})


def anywhere(search: Search) -> Range:
    return Range(_NONE, _limits(search.market, search.current))


def choose(search: Search, anything: Candidate | None) -> tuple[Candidate | None, Change, str]:
    """Choose among the best of each range the one whose change pays; `anything` is the best of all placements."""
    criteria, current = search.criteria, search.current
    if not current.choices():
        why = explanations.begins(anything.score, criteria) if anything is not None else ""
        return anything, Change.BEGIN, why
    chosen, change, why = (
        _as_it_is(search),
        Change.KEEP,
        explanations.keeps(criteria, is_assumed=search.profile.is_assumed),
    )
    for kind, candidate in _changes(search, anything):
        if candidate is None or (chosen is not None and candidate.nodes == chosen.nodes):
            continue
        pays, reason = _pays(search, kind, candidate, chosen)
        if pays:
            chosen, change, why = candidate, kind, reason
        elif change is Change.KEEP and reason:
            why = reason
    return chosen, change, why


def _changes(search: Search, anything: Candidate | None) -> list[tuple[Change, Candidate | None]]:
    kept, limits = search.current.expected(), _limits(search.market, search.current)
    if any(choice not in search.market.options for choice in kept):
        grown = None
    else:
        grown = search.best(Range(kept, limits)).best
    less = {choice: min(count, limits.get(choice, 0)) for choice, count in kept.items()}
    shrunk = search.best(Range(_NONE, less)).best
    return [(Change.GROW, grown), (Change.SHRINK, shrunk), (Change.MOVE, anything)]


def _as_it_is(search: Search) -> Candidate | None:
    kept = search.current.expected()
    if breach(search.criteria, search.market, search.current, kept):
        return None
    return search.scored(kept)


def _egress_beside(search: Search, nodes: Nodes) -> int:
    """Egress while the current nodes and their replacements run together."""
    there = search.current.committed()
    both = {choice: max(nodes.get(choice, 0), there.get(choice, 0)) for choice in sorted({*nodes, *there})}
    if any(choice not in search.market.options for choice in both) or len(_accelerators(both)) > 1:
        return 0
    found = score(search.profile, search.market, both, search.tuning)
    return 0 if found is None else found.estimate.egress_micro_usd_per_hour


def _pays(search: Search, kind: Change, new: Candidate, old: Candidate | None) -> tuple[bool, str]:
    criteria, tuning = search.criteria, search.tuning
    if old is None:
        return True, explanations.must(kind.value, new.score, criteria)
    gained = gain(new.score, old.score, criteria)
    if gained <= 0:
        return False, ""
    life_s = _life_s(search, new, old)
    pause_s = _pause_s(search, new, old)
    if kind is not Change.GROW and gained < tuning.threshold:
        return False, explanations.too_little(gained, tuning.threshold)
    if gained * life_s <= pause_s:
        return False, explanations.does_not_pay(gained, life_s, pause_s)
    return True, explanations.pays(kind.value, new.score, gained, life_s, criteria)


def _life_s(search: Search, new: Candidate, old: Candidate) -> float:
    """The shortest expected life of the nodes that would come."""
    options = search.market.options
    coming = [options[choice] for choice, count in new.nodes.items() if count > old.nodes.get(choice, 0)]
    lives = (option.lifetime_s for option in coming if option.choice.spot)
    return min((*lives, search.tuning.horizon_s))


def _pause_s(search: Search, new: Candidate, old: Candidate) -> float:
    """The pause of a change; with another accelerator, training also stops until its nodes boot."""
    pause_s = search.tuning.pause_s
    if _accelerators(new.nodes) == _accelerators(old.nodes):
        return pause_s
    return pause_s + max(search.market.options[choice].boot_s for choice in new.nodes)


def _within_the_caps(search: Search) -> dict[MachineKind, int]:
    """The current nodes that stay while no placement can train: as many as the cap pays for, the cheapest first.

    If enough nodes to train would exceed the cap by their egress, one fewer than needed to train stays.
    """
    criteria, options = search.criteria, search.market.options
    kept = {choice: count for choice, count in search.current.expected().items() if choice in options}
    found = score(search.profile, search.market, kept, search.tuning)
    most, money = criteria.max_workers, math.inf
    if criteria.max_micro_usd_per_hour is not None:
        money = criteria.max_micro_usd_per_hour
        if found is not None and not is_affordable(criteria, found):
            most = min(most, criteria.min_workers - 1)
    left: dict[MachineKind, int] = {}
    for choice in sorted(kept, key=lambda each: (options[each].micro_usd_per_hour, each)):
        price = options[choice].micro_usd_per_hour
        count = int(min(kept[choice], most, how_many(money, price)))
        if count > 0:
            left[choice] = count
            most, money = most - count, money - count * price
    return dict(sorted(left.items()))


def _accelerators(nodes: Nodes) -> set[str]:
    return {choice.accelerator for choice in nodes}


def _limits(market: Market, current: CurrentCapacity) -> dict[MachineKind, int]:
    return {choice: limit_of(market, current, choice) for choice in market.options}
