"""Texts for people: why the allocator decides as it does."""

from collections.abc import Sequence

from controlplane.allocator.availability import availability_of
from controlplane.allocator.counting import (
    at_most,
    ceiling,
    dismissed,
    held,
    is_paused,
    is_resting,
    is_there,
    lost,
    total,
)
from controlplane.allocator.facts import current_plan
from controlplane.allocator.offers import Offer
from controlplane.allocator.quota_room import Room, blocked_by_quota
from controlplane.allocator.starts import is_blocked
from controlplane.allocator.state import Allocator, Block, Closure, Pool, Shortage
from controlplane.clouds.outcomes import with_hint
from controlplane.planning.explanations import describe_quota, no_room
from controlplane.planning.plan import Change
from messages.ids import ClusterName

WAITING_FOR_LISTING = "waiting for the first listing"
NO_PRICES = "no prices are known yet"
SURPLUS_IN_USE = "surplus nodes are removed when the job releases them"
SHORTAGES = {
    Shortage.STOCKOUT: "has no machines",
    Shortage.QUOTA: "is beyond the quota",
    Shortage.REFUSED: "was refused",
}


def count_nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def nodes_text(here: int, wanted: int, coming: int = 0) -> str:
    return f"{here} of {wanted} nodes held" + (f", {coming} coming" if coming > 0 else "")


def more_nodes(here: int, wanted: int, more: int, zone: str) -> str:
    return f"{nodes_text(here, wanted)}, {more} more in {zone}"


def closed_for(zone: str, shortage: Shortage, for_s: float) -> str:
    return f"{zone} {SHORTAGES[shortage]}; next try in {for_s:.0f} s"


def not_ready(cluster: ClusterName, waits_for: str = "") -> str:
    return f"cluster {cluster} is not ready" + (f": {waits_for}" if waits_for else "")


def until_plan(number: int) -> str:
    return f"replacing lost nodes until plan {number}"


def describe_offer(offer: Offer) -> str:
    kind = offer.machine_type if offer.accelerator is None else f"{offer.machine_type} with {offer.accelerator}"
    return f"{offer.zone} ({kind}, {'spot' if offer.spot else 'on demand'})"


def explain_lowering(allocator: Allocator, pool: Pool, now_s: float) -> str:
    closed = availability_of(allocator, pool.offer.kind).closed
    if closed is not None and now_s < closed.until_s:
        return f"{pool.offer.zone} {SHORTAGES[closed.shortage]}, and the cloud would keep trying: {closed.detail}"
    useless = [f"{node.name}: {node.useless}" for node in lost(pool) if node.useless]
    if useless:
        return "; ".join(useless)
    taken = sorted(pool.vacant.keys() | {node.name for node in lost(pool)})
    if taken:
        return f"lost: {', '.join(taken)}; otherwise the cloud refills the slot when it can"
    if allocator.demand is not None:
        return f"the pool has more nodes than its target: {by_whom(allocator)}"
    return f"the job wants {count_nodes(allocator.wanted)} and has more"


def explain_idleness(allocator: Allocator, names: Sequence[str]) -> str:
    return f"the job has not used {', '.join(names)} for {allocator.settings.idle_timeout_s:g} s"


def by_whom(allocator: Allocator) -> str:
    """What sets the targets of a planned job's pools, and why."""
    plan = current_plan(allocator.plans)
    return f"{allocator.by}: {plan.why}" if plan is not None else allocator.by


def goal(allocator: Allocator) -> int:
    """The number of nodes that the job should have in the end."""
    if allocator.demand is None:
        return allocator.wanted
    if is_resting(allocator):
        return allocator.demand.criteria.min_workers
    plan = allocator.plans.plan
    return min(ceiling(allocator), sum(plan.placement.values()) if plan is not None else ceiling(allocator))


def explain_raising(allocator: Allocator, pool: Pool, more: int, now_s: float) -> str:
    here = sum(held(other) for other in allocator.pools.values())
    zone, fewer = pool.offer.zone, f"; a smaller request, because {pool.last_error}" if pool.requests_fewer else ""
    if allocator.demand is not None:
        return f"{more_nodes(here, goal(allocator), more, zone)}: {by_whom(allocator)}{fewer}"
    before, room = _before(allocator, pool.offer), Room(allocator)
    passed = [text for text in (_passed_over(allocator, other, room, now_s) for other in before) if text]
    if total(allocator.pools.values()) + more < allocator.wanted:
        room.take(pool.offer, more)
        passed += _no_room(pool.offer, room)
    others = f"; {', '.join(dict.fromkeys(passed))}" if passed else ""
    return f"{more_nodes(here, allocator.wanted, more, zone)}{others}{fewer}"


def summary(allocator: Allocator, now_s: float) -> str:
    listing = allocator.listing
    if allocator.finished:
        return "all pools of the job are gone"
    if not allocator.synced:
        return _unlisted(allocator) if listing.error else WAITING_FOR_LISTING
    if allocator.ended is not None:
        left = sum(is_there(pool) for pool in allocator.pools.values())
        return f"the job has ended; {left} of its pools remain" if left else "the job has ended; listing once more"
    here = sum(held(pool) for pool in allocator.pools.values())
    coming = sum(at_most(pool) - dismissed(pool) for pool in allocator.pools.values()) - here
    text = nodes_text(here, goal(allocator), coming)
    if allocator.demand is not None:
        regions = (
            {choice.region for choice in blocked_by_quota(allocator)} if here + coming < goal(allocator) else set()
        )
        if regions:
            text += f"; noticed nodes use up the quota of {', '.join(sorted(regions))} until they are gone"
        return f"{text}; {by_whom(allocator)}"
    if here + coming < allocator.wanted:
        room = Room(allocator)
        passed = [
            reported
            for reported in (_passed_over(allocator, offer, room, now_s) for offer in allocator.offers)
            if reported
        ]
        text += f"; {', '.join(dict.fromkeys(passed)) or 'no offer has room for more'}"
    if here > allocator.wanted:
        text += f"; {SURPLUS_IN_USE}"
    return text


def shortage(allocator: Allocator, now_s: float) -> str:
    """Why the job gets fewer nodes than it wants, and what a person can do; without reasons that pass by themselves."""
    if allocator.ended is not None:
        return ""
    if allocator.listing.error:
        return _unlisted(allocator)
    if not allocator.synced or is_paused(allocator):
        return ""
    plan, wanted = current_plan(allocator.plans), goal(allocator)
    waits = plan.why if plan is not None and plan.change is Change.WAIT else ""
    blocked = _blocked(allocator, now_s)
    if not waits and sum(at_most(pool) for pool in allocator.pools.values()) >= wanted:
        newest = allocator.plans.plan
        full = newest.limited_by if newest is not None else ()
        return "; ".join([*blocked, *([no_room(full), *_where_to_ask(allocator)] if full else [])])
    if allocator.demand is not None and allocator.market is None:
        return NO_PRICES
    room = sum(offer.max_nodes for offer in allocator.offers)
    reported = blocked + ([f"the fleet offers only {count_nodes(room)}"] if room < wanted else [])
    reported += [text for text in (waits, allocator.by if is_resting(allocator) else "") if text]
    zones: dict[tuple[str, str], list[str]] = {}
    left, unfit = Room(allocator), dict[str, None]()
    for offer in allocator.offers:
        if not allocator.clusters.get(offer.cluster, False):
            reported.append(not_ready(offer.cluster, allocator.unready.get(offer.cluster, "")))
        elif (closed := availability_of(allocator, offer.kind).closed) is not None and now_s < closed.until_s:
            zones.setdefault((offer.machine_type, _problem(closed)), []).append(offer.zone)
        else:
            unfit |= dict.fromkeys(_no_room(offer, left))
    reported += [f"{machine} in {', '.join(dict.fromkeys(where))} {what}" for (machine, what), where in zones.items()]
    reported += [*unfit, *_where_to_ask(allocator)] if unfit else []
    return "; ".join(dict.fromkeys(reported))


def _no_room(offer: Offer, room: Room) -> list[str]:
    return [f"{describe_quota(key)} has no room for another {offer.machine_type}" for key in room.full_for(offer)]


def _where_to_ask(allocator: Allocator) -> list[str]:
    return [f"ask for more at {allocator.quotas.page}"] if allocator.quotas.page else []


def describe_block(cluster: ClusterName, block: Block) -> str:
    return f"workers cannot start in cluster {cluster}: {with_hint(block.detail, block.hint)}"


def _blocked(allocator: Allocator, now_s: float) -> list[str]:
    return [describe_block(name, block) for name, block in allocator.blocks.items() if now_s < block.until_s]


def _problem(closed: Closure) -> str:
    what = SHORTAGES[closed.shortage]
    return what if closed.shortage is Shortage.STOCKOUT else f"{what}: {with_hint(closed.detail, closed.hint)}"


def _unlisted(allocator: Allocator) -> str:
    listing = allocator.listing
    return f"cannot list the cloud's pools: {with_hint(listing.error, listing.hint)}"


def _before(allocator: Allocator, offer: Offer) -> list[Offer]:
    offers = allocator.offers
    return list(offers[: offers.index(offer)]) if offer in offers else []


def _passed_over(allocator: Allocator, offer: Offer, room: Room, now_s: float) -> str:
    known = availability_of(allocator, offer.kind)
    pool = next((pool for pool in allocator.pools.values() if pool.offer == offer), None)
    closed = known.closed
    if closed is not None and now_s < closed.until_s:
        return closed_for(offer.zone, closed.shortage, closed.until_s - now_s)
    if pool is not None and pool.operation is not None:
        return f"{offer.zone} has an operation in progress"
    if pool is not None and pool.hanging_s is not None:
        return f"{offer.zone} provided no machines in time and still tries"
    if pool is not None and pool.failures >= allocator.settings.busy_tries and pool.retry_s is not None:
        return f"the pool in {offer.zone} could not be changed {pool.failures} times; next try after a pause"
    if pool is not None and pool.doubt is not None:
        return f"the pool in {offer.zone} must be listed first"
    if not allocator.clusters.get(offer.cluster, False):
        return not_ready(offer.cluster)
    if is_blocked(allocator, offer.cluster, now_s):
        return f"workers cannot start in cluster {offer.cluster}"
    if known.cooldown_until_s is not None and now_s < known.cooldown_until_s:
        return f"{offer.zone} preempted a node recently or did not answer"
    if pool is not None and pool.target >= offer.max_nodes:
        return f"{offer.zone} already has its maximum of {count_nodes(offer.max_nodes)}"
    return ", ".join(_no_room(offer, room))
