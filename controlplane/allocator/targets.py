"""What is aimed at now, by whose word, and which nodes in use should be left for it.

A job without a demand has the fleet's order. A planned job follows the newest plan only while that is of the present
world, market and criteria. Otherwise a stopgap keeps what there is and replaces what was lost, until a plan is made.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from controlplane.allocator.choices import by_choice
from controlplane.allocator.cooldown import taken_lately
from controlplane.allocator.counting import ceiling, dismissed, going, is_dismissed, is_paused, is_resting, spare
from controlplane.allocator.demand import Basis
from controlplane.allocator.facts import aimed_at, current
from controlplane.allocator.fleet_order import kept, targets_in_order
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.prospects import Supplies
from controlplane.allocator.quota_room import Room, held_up
from controlplane.allocator.state import Allocator, Node
from controlplane.catalog.kinds import MachineKind
from controlplane.planning.greedy import greedy
from controlplane.planning.market import NONE, Nodes
from controlplane.planning.profiles import until_measured
from controlplane.planning.scoring import gain, score
from controlplane.planning.tuning import Tuning
from messages.ids import ClusterName

_TUNING = Tuning()
Leaving = dict[ClusterName, frozenset[str]]
RESTS = "what could be had was too few to run with, and idle for long: all are asked for again after a while"


@dataclass(frozen=True, slots=True)
class Targets:
    targets: dict[Offer, int]
    leaving: Leaving
    by: str = ""
    """Whose word is followed; empty where it is the fleet's order."""


def targets_of(allocator: Allocator, supplies: Supplies, now_s: float) -> Targets:
    found = _undismissed(allocator, supplies, now_s)
    return replace(found, leaving=_with_dismissed(allocator, found.leaving))


def _undismissed(allocator: Allocator, supplies: Supplies, now_s: float) -> Targets:
    demand, plans = allocator.demand, allocator.plans
    if demand is None:
        fits = Room(allocator).take
        return Targets(targets_in_order(allocator.wanted, list(supplies), supplies, now_s, fits), {})
    if is_paused(allocator):
        return _exactly(allocator, supplies, {}, now_s, "nothing is wanted")
    if plans.facts is None:
        why = RESTS if is_resting(allocator) else "no prices are known"
        return Targets({offer: kept(supply, now_s) for offer, supply in supplies.items()}, {}, why)
    plan = current(plans)
    if plan is not None:
        return _exactly(allocator, supplies, plan.ask, now_s, f"plan {plans.number} ({plan.change.value})")
    there = sum(plans.facts.present.committed().values())
    lost, aimed = _lost(allocator), aimed_at(plans)
    wanted = min(there + len(lost) if aimed is None else aimed, ceiling(allocator))
    doubts = _doubts(allocator, supplies, now_s)
    nodes = _stopgap(plans.facts, wanted, doubts, lost[0] if lost else "")
    targets = _targets(supplies, nodes, now_s)
    is_early = plans.not_before_s is not None and now_s < plans.not_before_s
    by = "waiting for measured steps" if is_early else f"what was lost, until plan {plans.number + 1}"
    return Targets(targets, _still_leaving(allocator, there - wanted), by)


def _lost(allocator: Allocator) -> list[str]:
    """The accelerators of machines that were taken and are not given up yet, if the newest plan has them."""
    plan = allocator.plans.plan
    planned = {choice.accelerator for choice in plan.placement} if plan is not None else None
    lost: list[str] = []
    for pool in allocator.pools.values():
        name = pool.offer.kind.accelerator
        if planned is None or name in planned:
            lost += [name] * (going(pool) - dismissed(pool) + len(pool.vacant))
    return lost


def _doubts(allocator: Allocator, supplies: Supplies, now_s: float) -> dict[MachineKind, float]:
    """Where machines were taken lately, the later the more; most of all where none can be asked for just now."""
    busy = {
        choice for choice, offers in by_choice(supplies).items() if not any(supplies[offer].settled for offer in offers)
    }
    return taken_lately(allocator, now_s) | dict.fromkeys(busy | held_up(allocator), math.inf)


def _exactly(allocator: Allocator, supplies: Supplies, nodes: Nodes, now_s: float, by: str) -> Targets:
    return Targets(_targets(supplies, nodes, now_s), _leaving(allocator, supplies, nodes), by)


def _targets(supplies: Supplies, nodes: Nodes, now_s: float) -> dict[Offer, int]:
    """Of each choice what is held stays where it is; more, or less, goes by the fleet's order."""
    targets: dict[Offer, int] = {}
    for choice, offers in by_choice(supplies).items():
        targets |= targets_in_order(nodes.get(choice, 0), offers, supplies, now_s)
    return targets


def _leaving(allocator: Allocator, supplies: Supplies, nodes: Nodes) -> Leaving:
    """Of each choice as many nodes in use as are too many beside those that nobody would miss: the youngest."""
    found: dict[ClusterName, set[str]] = {}
    for choice, offers in by_choice(supplies).items():
        in_use = _in_use(allocator, offers)
        unused = sum(supplies[offer].spare for offer in offers)
        surplus = len(in_use) + unused - nodes.get(choice, 0)
        for cluster, node in in_use[: max(0, surplus - unused)]:
            found.setdefault(cluster, set()).add(node.name)
    return {cluster: frozenset(names) for cluster, names in found.items()}


def _in_use(allocator: Allocator, offers: list[Offer]) -> list[tuple[ClusterName, Node]]:
    """Of the last offer first; those that the job is leaving already stay the first."""
    found: list[tuple[ClusterName, Node]] = []
    for offer in reversed(offers):
        pool = allocator.pools.get(pool_ref(allocator.job, offer))
        if pool is not None and not pool.stopping:
            unused = {node.name for node in spare(allocator, pool)}
            nodes = [node for node in pool.nodes.values() if node.counts and node.name not in unused]
            nodes.sort(key=lambda node: (-node.first_seen_s, node.name))
            found += [(pool.ref.cluster, node) for node in nodes]
    going = allocator.leaving
    return sorted(found, key=lambda each: each[1].name not in going.get(each[0], frozenset()))


def _still_leaving(allocator: Allocator, surplus: int) -> Leaving:
    """Between two plans: those that the last one named, if there are still too many."""
    found: dict[ClusterName, set[str]] = {}
    for pool in allocator.pools.values():
        named = allocator.leaving.get(pool.ref.cluster, frozenset())
        for node in sorted(pool.nodes.values(), key=lambda node: node.name):
            if node.counts and node.name in named and surplus > 0:
                found.setdefault(pool.ref.cluster, set()).add(node.name)
                surplus -= 1
    return {cluster: frozenset(names) for cluster, names in found.items()}


def _with_dismissed(allocator: Allocator, leaving: Leaving) -> Leaving:
    """Whatever the plan says: these very nodes were of too little use."""
    found = dict(leaving)
    for pool in allocator.pools.values():
        names = frozenset(node.name for node in pool.nodes.values() if is_dismissed(node))
        if names:
            found[pool.ref.cluster] = found.get(pool.ref.cluster, frozenset()) | names
    return found


def _stopgap(basis: Basis, wanted: int, doubts: Mapping[MachineKind, float], lost: str = "") -> Nodes:
    """The answer to a loss until a plan is made of it: the greedy step, which asks no solver.

    Where a machine was just preempted another is not to be counted on, nor where an operation is under way: other zones
    come first, and if there are none, the one where it is longest ago. Unless the plan would only move it back: it
    leaves what runs for no gain below its threshold, which is the measure here too.

    While there is something that the market does not have, nothing is added: its price is not known.

    `lost`: the accelerator that there was, where nothing is left.
    """
    there = {choice: count for choice, count in basis.present.committed().items() if choice in basis.market.options}
    if sum(there.values()) >= wanted or len(there) < len(basis.present.choices()):
        return there
    anywhere = _greedy(basis, wanted, NONE, lost)
    added = {choice for choice, count in anywhere.items() if count > there.get(choice, 0)}
    if not added & doubts.keys():
        return anywhere
    surest = _greedy(basis, wanted, doubts, lost)
    return anywhere if _would_be_moved(basis, surest, anywhere) else surest


def _greedy(basis: Basis, wanted: int, last: Mapping[MachineKind, float], lost: str) -> Nodes:
    return greedy(basis.criteria, basis.profile, basis.market, basis.present, wanted, _TUNING, last, lost)


def _would_be_moved(basis: Basis, nodes: Nodes, better: Nodes) -> bool:
    here = score(basis.profile, basis.market, nodes, _TUNING)
    there = score(basis.profile, basis.market, better, _TUNING)
    criteria = until_measured(basis.criteria, basis.profile)
    return here is not None and there is not None and gain(there, here, criteria) >= _TUNING.threshold
