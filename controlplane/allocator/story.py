"""Events for people: what was requested, and how the allocator differs before and after a decision."""

from collections.abc import Sequence
from typing import assert_never

from controlplane.allocator.availability import newly_closed
from controlplane.allocator.counting import held
from controlplane.allocator.effects import (
    AllocatorEffect,
    Announce,
    CreatePool,
    DeletePool,
    FollowMarket,
    ListPools,
    MakePlan,
    Place,
    RemoveNodes,
    ResizePool,
    ShareStock,
)
from controlplane.allocator.explanations import count_nodes, describe_offer, goal
from controlplane.allocator.state import Allocator, Node, Plans, Pool, Shortage
from controlplane.catalog.money import usd_text
from controlplane.clouds.outcomes import with_hint
from controlplane.planning.explanations import no_room, places
from controlplane.planning.plan import Change, Plan
from messages.events import LOSER_FIELD
from messages.jobs import Scalar

SHORTAGE_KINDS = {
    Shortage.STOCKOUT: "zone_stocked_out",
    Shortage.QUOTA: "quota_exceeded",
    Shortage.REFUSED: "cloud_refused",
}


def announce(before: Allocator, after: Allocator, requested: Sequence[AllocatorEffect]) -> list[Announce]:
    return [
        *_found(before, after),
        *_planned(before.plans, after.plans),
        *_nodes(before, after),
        *_shortages(before, after),
        *_blocks(before, after),
        *(
            announced
            for effect in requested
            if not _is_repeated(before, effect) and (announced := _requested(after, effect)) is not None
        ),
        *_held(before, after),
        *_trouble(before, after),
    ]


def _found(before: Allocator, after: Allocator) -> list[Announce]:
    announced = []
    for ref, pool in after.pools.items():
        if pool.adopted and ref not in before.pools:
            text = f"found pool {ref.pool} of {count_nodes(pool.target)} in {pool.offer.zone}"
            announced.append(_about(pool, "pool_found", text, "it carries the job's label"))
    return announced


def _nodes(before: Allocator, after: Allocator) -> list[Announce]:
    announced = []
    for ref, pool in after.pools.items():
        known = before.pools.get(ref)
        for name, node in known.nodes.items() if known is not None else ():
            fate = _fate(node, pool.nodes.get(name), pool)
            if fate is not None:
                kind, text, why = fate
                announced.append(_about(pool, kind, f"node {name} in {pool.offer.zone} {text}", why, node=name))
    return announced


def _fate(node: Node, now: Node | None, pool: Pool) -> tuple[str, str, str] | None:
    """The kind of event, its text, and why."""
    if node.lost_s is not None:
        return None
    if now is not None and now.uid == node.uid:
        if now.lost_s is not None:
            return ("node_given_back", "will be removed", now.useless) if now.useless else ("node_lost", "was lost", "")
        if now.sidelined_s is not None and node.sidelined_s is None:
            return "node_sidelined", *_why_sidelined(now)
        if now.sidelined_s is None and node.sidelined_s is not None and now.is_sound:
            return "node_back", "is ready again", "it counts again; surplus nodes are released"
        if now.notice_until_s is not None and node.notice_until_s is None:
            return "node_noticed", "will be preempted", ""
        return ("node_underused", "will be removed", now.dismissed) if now.dismissed and not node.dismissed else None
    operation = pool.operation
    removing = operation.nodes - operation.vacant if operation is not None else frozenset()
    removed = node.name in removing or (node.name, node.uid) in pool.removed
    return None if removed else ("node_lost", "is gone", "")


def _why_sidelined(node: Node) -> tuple[str, str]:
    if node.cordoned:
        return "is being drained", "it is cordoned, for an upgrade or a repair; another node replaces it meanwhile"
    return "is not ready", "another node replaces it; it stays for a while, because it may recover or be repaired"


def _shortages(before: Allocator, after: Allocator) -> list[Announce]:
    announced = []
    for stock, closure in newly_closed(before.availability, after.availability):
        text = f"{stock.machine_type} in {stock.zone} is not available"
        if closure.shortage is not Shortage.STOCKOUT and closure.hint:
            text += f" ({closure.hint})"
        fields: dict[str, Scalar | None] = {"zone": stock.zone, "machine_type": stock.machine_type}
        announced.append(Announce(SHORTAGE_KINDS[closure.shortage], text, closure.detail, fields))
    return announced


def _blocks(before: Allocator, after: Allocator) -> list[Announce]:
    """One event for each failed try of a cluster, and one when its workers start again."""
    announced = []
    for cluster, block in after.blocks.items():
        known = before.blocks.get(cluster)
        if known is None or (known.failures, known.hint) != (block.failures, block.hint):
            text = f"workers cannot start in cluster {cluster}; no nodes are requested there for now"
            why = with_hint(block.detail, block.hint)
            announced.append(Announce("starts_failed", text, why, {"cluster": cluster}))
    announced += [
        Announce("starts_work", f"workers in cluster {cluster} start again", "", {"cluster": cluster})
        for cluster in sorted(before.blocks.keys() - after.blocks.keys())
    ]
    return announced


def _is_repeated(before: Allocator, effect: AllocatorEffect) -> bool:
    """Report whether this effect repeats a failed operation: only its first try is announced."""
    pool = before.pools.get(effect.ref) if isinstance(effect, CreatePool | ResizePool | RemoveNodes) else None
    return pool is not None and pool.operation is None and pool.failures > 0


def _requested(allocator: Allocator, effect: AllocatorEffect) -> Announce | None:
    match effect:
        case CreatePool(_, _, plan, why):
            text = f"requesting a pool of {count_nodes(plan.size)} in {describe_offer(_pool(allocator, effect).offer)}"
            return _about(_pool(allocator, effect), "pool_created", text, why, size=plan.size)
        case ResizePool(operation, _, size, why):
            pool = _pool(allocator, effect)
            raises = pool.operation is not None and pool.operation.number == operation and pool.operation.raises
            if not raises:
                return _lowered(pool, size, why)
            text = f"raising pool {pool.ref.pool} in {pool.offer.zone} to {count_nodes(size)}"
            return _about(pool, "pool_raised", text, why, size=size)
        case RemoveNodes(_, _, nodes, why):
            pool = _pool(allocator, effect)
            if pool.operation is not None and pool.operation.nodes == pool.operation.vacant:
                return _lowered(pool, pool.operation.target, why)
            return _about(pool, "nodes_removed", f"removing {', '.join(nodes)}", why)
        case DeletePool(_, ref, why):
            return _about(_pool(allocator, effect), "pool_deleted", f"deleting pool {ref.pool}", why)
        case ListPools() | MakePlan() | Place() | FollowMarket() | ShareStock() | Announce():
            return None
        case _:
            assert_never(effect)


def _lowered(pool: Pool, size: int, why: str) -> Announce:
    text = f"lowering pool {pool.ref.pool} in {pool.offer.zone} to {count_nodes(size)}"
    return _about(pool, "pool_lowered", text, why, size=size)


def _held(before: Allocator, after: Allocator) -> list[Announce]:
    if after.finished and not before.finished:
        return [Announce("capacity_gone", "all pools of the job are gone", after.ended or "")]
    count = sum(held(pool) for pool in after.pools.values())
    was = sum(held(pool) for pool in before.pools.values())
    wanted = goal(after)
    if count == wanted and (was, goal(before)) != (count, wanted) and after.ended is None and count:
        text = "the node has arrived" if count == 1 else f"all {count} nodes have arrived"
        return [Announce("capacity_reached", text, fields={"nodes": count})]
    return []


def _trouble(before: Allocator, after: Allocator) -> list[Announce]:
    announced = []
    if after.listing.error and after.listing.error != before.listing.error:
        text = "cannot list the cloud's pools" + (f" ({after.listing.hint})" if after.listing.hint else "")
        announced.append(Announce("listing_failed", text, after.listing.error))
    for ref, pool in after.pools.items():
        known = before.pools.get(ref)
        if known is not None and pool.last_error and pool.failures > known.failures == 0:
            announced.append(_about(pool, "pool_trouble", f"pool {ref.pool} could not be changed", pool.last_error))
    return announced


def _pool(allocator: Allocator, effect: CreatePool | ResizePool | RemoveNodes | DeletePool) -> Pool:
    return allocator.pools[effect.ref]


def _about(pool: Pool, kind: str, text: str, why: str, **fields: str | int) -> Announce:
    return Announce(kind, text, why, {"cluster": pool.ref.cluster, "zone": pool.offer.zone, **fields})


def _planned(before: Plans, after: Plans) -> list[Announce]:
    """Announce the plan that is followed: its place, speed and cost, and the alternatives.

    A plan with the same placement and kind of change as the last one is not announced.
    """
    if after.plan is None or after.reported is None or after.reported == before.reported:
        return []
    plan = after.plan
    where = places(plan.placement) or "nothing"
    why = plan.why if plan.change is Change.WAIT or not plan.limited_by else f"{plan.why}; {no_room(plan.limited_by)}"
    return [Announce("planned", f"aiming at {where} ({plan.change.value})", why, _plan_figures(plan) | _losers(plan))]


def _plan_figures(plan: Plan) -> dict[str, Scalar | None]:
    found: dict[str, Scalar | None] = {"change": plan.change.value, "workers": sum(plan.placement.values())}
    if plan.score is None:
        return found
    estimate = plan.score.estimate
    if plan.score.is_assumed:
        found["usd_per_hour"] = usd_text(estimate.machines_micro_usd_per_hour)
    else:
        found |= {
            "steps_per_s": round(estimate.steps_per_s, 6),
            "usd_per_hour": usd_text(estimate.micro_usd_per_hour),
            "usd_per_1000_steps": usd_text(estimate.micro_usd_per_1000_steps),
        }
    return found


def _losers(plan: Plan) -> dict[str, Scalar | None]:
    return {
        f"{LOSER_FIELD}{number}": f"{places(other.nodes)}: {other.why_not}"
        for number, other in enumerate(plan.alternatives, start=1)
    }
