"""The current targets of the pools, what sets them, and which nodes in use the job should leave.

A job without a demand follows the fleet's order. A planned job follows the newest plan only while its inputs are
current. Otherwise a stopgap keeps the current nodes and replaces lost ones until a new plan is made.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from controlplane.allocator.choices import by_choice
from controlplane.allocator.cooldown import cooldown_ends
from controlplane.allocator.counting import ceiling, dismissed, is_dismissed, is_paused, is_resting, not_counted, spare
from controlplane.allocator.demand import Basis
from controlplane.allocator.explanations import NO_PRICES, until_plan
from controlplane.allocator.facts import current_plan, target_workers
from controlplane.allocator.fleet_order import expected, targets_in_order
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.prospects import Supplies
from controlplane.allocator.quota_room import Room, blocked_by_quota
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
MEASURING = "waiting for measured steps"
RESTS = "the available nodes were too few to run with and idle for too long; the next try follows after a pause"


@dataclass(frozen=True, slots=True)
class Targets:
    targets: dict[Offer, int]
    leaving: Leaving
    by: str = ""
    """What sets the targets; empty for the fleet's order."""


def targets_of(allocator: Allocator, supplies: Supplies, now_s: float) -> Targets:
    found = _undismissed(allocator, supplies, now_s)
    return replace(found, leaving=_with_dismissed(allocator, found.leaving))


def _undismissed(allocator: Allocator, supplies: Supplies, now_s: float) -> Targets:
    demand, plans = allocator.demand, allocator.plans
    if demand is None:
        fits = Room(allocator).take
        return Targets(targets_in_order(allocator.wanted, list(supplies), supplies, now_s, fits), {})
    if is_paused(allocator):
        return _exactly(allocator, supplies, {}, now_s, "no nodes are wanted")
    if plans.facts is None:
        why = RESTS if is_resting(allocator) else NO_PRICES
        return Targets({offer: expected(supply, now_s) for offer, supply in supplies.items()}, {}, why)
    plan = current_plan(plans)
    if plan is not None:
        return _exactly(allocator, supplies, plan.ask, now_s, f"plan {plans.number} ({plan.change.value})")
    there = sum(plans.facts.current.committed().values())
    lost, targeted = _lost(allocator), target_workers(plans)
    wanted = min(there + len(lost) if targeted is None else targeted, ceiling(allocator))
    doubts = _doubts(allocator, supplies, now_s)
    nodes = _stopgap(plans.facts, wanted, doubts, lost[0] if lost else "")
    targets = _targets(supplies, nodes, now_s)
    is_early = plans.not_before_s is not None and now_s < plans.not_before_s
    by = MEASURING if is_early else until_plan(plans.number + 1)
    return Targets(targets, _still_leaving(allocator, there - wanted), by)


def _lost(allocator: Allocator) -> list[str]:
    """The accelerators of lost machines whose slots are not removed yet, if the newest plan uses them."""
    plan = allocator.plans.plan
    planned = {choice.accelerator for choice in plan.placement} if plan is not None else None
    lost: list[str] = []
    for pool in allocator.pools.values():
        name = pool.offer.kind.accelerator
        if planned is None or name in planned:
            lost += [name] * (not_counted(pool) - dismissed(pool) + len(pool.vacant))
    return lost


def _doubts(allocator: Allocator, supplies: Supplies, now_s: float) -> dict[MachineKind, float]:
    """Choices to avoid: the end of their cooldown, or infinity if no machine can be requested now."""
    busy = {
        choice for choice, offers in by_choice(supplies).items() if not any(supplies[offer].settled for offer in offers)
    }
    return cooldown_ends(allocator, now_s) | dict.fromkeys(busy | blocked_by_quota(allocator), math.inf)


def _exactly(allocator: Allocator, supplies: Supplies, nodes: Nodes, now_s: float, by: str) -> Targets:
    return Targets(_targets(supplies, nodes, now_s), _leaving(allocator, supplies, nodes), by)


def _targets(supplies: Supplies, nodes: Nodes, now_s: float) -> dict[Offer, int]:
    """The target of each offer: held nodes stay where they are, changes follow the fleet's order."""
    targets: dict[Offer, int] = {}
    for choice, offers in by_choice(supplies).items():
        targets |= targets_in_order(nodes.get(choice, 0), offers, supplies, now_s)
    return targets


def _leaving(allocator: Allocator, supplies: Supplies, nodes: Nodes) -> Leaving:
    """The nodes in use that are surplus for each choice after unused ones are removed: the youngest first."""
    found: dict[ClusterName, set[str]] = {}
    for choice, offers in by_choice(supplies).items():
        in_use = _in_use(allocator, offers)
        unused = sum(supplies[offer].spare for offer in offers)
        surplus = len(in_use) + unused - nodes.get(choice, 0)
        for cluster, node in in_use[: max(0, surplus - unused)]:
            found.setdefault(cluster, set()).add(node.name)
    return {cluster: frozenset(names) for cluster, names in found.items()}


def _in_use(allocator: Allocator, offers: list[Offer]) -> list[tuple[ClusterName, Node]]:
    """Nodes in use in the order in which the job leaves them: those it is leaving now, then the last offer's."""
    found: list[tuple[ClusterName, Node]] = []
    for offer in reversed(offers):
        pool = allocator.pools.get(pool_ref(allocator.job, offer))
        if pool is not None and not pool.stopping:
            unused = {node.name for node in spare(allocator, pool)}
            nodes = [node for node in pool.nodes.values() if node.counts and node.name not in unused]
            nodes.sort(key=lambda node: (-node.first_seen_s, node.name))
            found += [(pool.ref.cluster, node) for node in nodes]
    leaving = allocator.leaving
    return sorted(found, key=lambda each: each[1].name not in leaving.get(each[0], frozenset()))


def _still_leaving(allocator: Allocator, surplus: int) -> Leaving:
    """Between two plans: the nodes that the last plan named, if there are still too many."""
    found: dict[ClusterName, set[str]] = {}
    for pool in allocator.pools.values():
        named = allocator.leaving.get(pool.ref.cluster, frozenset())
        for node in sorted(pool.nodes.values(), key=lambda node: node.name):
            if node.counts and node.name in named and surplus > 0:
                found.setdefault(pool.ref.cluster, set()).add(node.name)
                surplus -= 1
    return {cluster: frozenset(names) for cluster, names in found.items()}


def _with_dismissed(allocator: Allocator, leaving: Leaving) -> Leaving:
    """The leaving nodes with all dismissed ones, which leave whatever the plan is."""
    found = dict(leaving)
    for pool in allocator.pools.values():
        names = frozenset(node.name for node in pool.nodes.values() if is_dismissed(node))
        if names:
            found[pool.ref.cluster] = found.get(pool.ref.cluster, frozenset()) | names
    return found


def _stopgap(basis: Basis, wanted: int, doubts: Mapping[MachineKind, float], lost: str = "") -> Nodes:
    """The nodes after a loss until a plan is made: the greedy step, which needs no solver.

    Choices in `doubts` come last, the one with the oldest preemption first among them: a zone that just preempted a
    machine, or has an operation in progress, may have no other. They do not come last if the plan would only move the
    nodes back there, for a gain above its threshold.

    Nothing is added while the job has nodes that the market does not offer, because their price is not known.

    `lost`: the accelerator of the lost nodes, if no node is left.
    """
    there = {choice: count for choice, count in basis.current.committed().items() if choice in basis.market.options}
    if sum(there.values()) >= wanted or len(there) < len(basis.current.choices()):
        return there
    anywhere = _greedy(basis, wanted, NONE, lost)
    added = {choice for choice, count in anywhere.items() if count > there.get(choice, 0)}
    if not added & doubts.keys():
        return anywhere
    surest = _greedy(basis, wanted, doubts, lost)
    return anywhere if _would_be_moved(basis, surest, anywhere) else surest


def _greedy(basis: Basis, wanted: int, last: Mapping[MachineKind, float], lost: str) -> Nodes:
    return greedy(basis.criteria, basis.profile, basis.market, basis.current, wanted, _TUNING, last, lost)


def _would_be_moved(basis: Basis, nodes: Nodes, better: Nodes) -> bool:
    here = score(basis.profile, basis.market, nodes, _TUNING)
    there = score(basis.profile, basis.market, better, _TUNING)
    criteria = until_measured(basis.criteria, basis.profile)
    return here is not None and there is not None and gain(there, here, criteria) >= _TUNING.threshold
