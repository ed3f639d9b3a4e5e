"""When to list the pools again, and when to decide again without an event."""

from collections.abc import Iterator

from controlplane.allocator.counting import is_settled, is_there
from controlplane.allocator.facts import plan_due_s
from controlplane.allocator.idle import idle_due_s
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.starts import start_times
from controlplane.allocator.state import Allocator, Doubt, Listing, Node, Pool
from runtime.backoff import pause_after


def next_listing(allocator: Allocator) -> tuple[float, str] | None:
    """When to request the next listing, and why."""
    listing, settings = allocator.listing, allocator.settings
    if allocator.finished:
        return None
    if listing.asked_s is not None:
        return listing.asked_s + settings.list_timeout_s, "the last listing got no answer"
    at_s, why = _next_by_need(allocator)
    return max(at_s, listing.retry_s or at_s), why


def settles(listing: Listing, doubt: Doubt) -> bool:
    """Report whether the last learned listing was requested late enough to show the outcome."""
    return listing.learned > doubt.listing and listing.learned_s is not None and listing.learned_s >= doubt.settles_s


def quiet_from_s(allocator: Allocator) -> float:
    return allocator.quiet_since_s + allocator.settings.quiet_s


def wake_at_s(allocator: Allocator, now_s: float) -> float | None:
    """When time alone can change the decision."""
    if allocator.finished:
        return None
    times = [at_s for at_s in _times(allocator) if at_s > now_s]
    return min(times, default=now_s + allocator.settings.relist_s)


def _next_by_need(allocator: Allocator) -> tuple[float, str]:
    learned_s, settings = allocator.listing.learned_s, allocator.settings
    if learned_s is None:
        return float("-inf"), "nothing is known yet"
    needs = [(learned_s + settings.relist_s, "to see changes from outside")]
    if allocator.listing.unlisted_s is not None:
        needs.append((allocator.listing.unlisted_s, "a report that only a listing explains"))
    for pool in allocator.pools.values():
        if pool.doubt is not None and pool.operation is None:
            again_s = learned_s + pause_after(pool.failures + 1, settings.doubt_s, settings.relist_s)
            at_s = again_s if settles(allocator.listing, pool.doubt) else pool.doubt.settles_s
            needs.append((at_s, f"the target of pool {pool.ref.pool} is not known: {pool.doubt.why}"))
        if pool.updating:
            why = f"to see whether the cloud still changes the nodes of pool {pool.ref.pool}"
            needs.append((learned_s + settings.relist_updating_s, why))
        emptied_s = _emptied_s(pool)
        if emptied_s is not None and is_settled(pool):
            at_s = max(emptied_s, learned_s) + max(settings.refill_s, learned_s - emptied_s)
            needs.append((at_s, f"to see whether the cloud refills pool {pool.ref.pool}"))
    if allocator.ended is not None:
        left = any(is_there(pool) for pool in allocator.pools.values())
        at_s = learned_s + settings.quiet_s if left else quiet_from_s(allocator)
        needs.append((at_s, "to see that all pools of the job are gone"))
    return min(needs)


def _emptied_s(pool: Pool) -> float | None:
    """When the newest of the slots that the cloud tries to refill became empty."""
    lost = (node.lost_s for node in pool.nodes.values() if node.lost_s is not None)
    return max((*pool.vacant.values(), *lost), default=None)


def _times(allocator: Allocator) -> Iterator[float]:
    due = next_listing(allocator)
    if due is not None:
        yield due[0]
    plan_s = plan_due_s(allocator)
    if plan_s is not None:
        yield plan_s
    yield from idle_due_s(allocator)
    yield from start_times(allocator)
    if allocator.unwanted_since_s is not None:
        yield allocator.unwanted_since_s + allocator.settings.release_s
    yield from (each.until_s for each in (allocator.cutback, allocator.idle_cap) if each is not None)
    for known in allocator.availability.values():
        yield from (at_s for at_s in (known.closed_until_s, known.cooldown_until_s) if at_s is not None)
        if known.short_s is not None and allocator.demand is not None:
            yield known.short_s + allocator.settings.wary_s
    for pool in allocator.pools.values():
        yield from _times_of(pool, allocator)


def _times_of(pool: Pool, allocator: Allocator) -> Iterator[float]:
    if pool.retry_s is not None:
        yield pool.retry_s
    yield from (since_s + allocator.settings.owed_s for since_s in pool.vacant.values())
    if pool.hanging_s is not None:
        yield pool.hanging_s + allocator.settings.hang_s
    if pool.empty_since_s is not None:
        yield pool.empty_since_s + allocator.settings.arrival_s
    for node in pool.nodes.values():
        yield from _times_of_node(node, allocator.settings)


def _times_of_node(node: Node, settings: AllocatorSettings) -> Iterator[float]:
    if node.lost_s is not None:
        yield from (node.lost_s + settings.owed_s, node.lost_s + settings.linger_s)
    elif node.notice_until_s is not None:
        yield node.notice_until_s
    elif node.sidelined_s is not None:
        yield node.sidelined_s + settings.unready_timeout_s
    elif node.unready_s is not None:
        yield node.unready_s + settings.unready_s
    elif not node.was_ready:
        yield node.first_seen_s + settings.arrival_s
