"""Learns from the end of an operation."""

from dataclasses import replace
from typing import assert_never

from controlplane.allocator.availability import close, close_for, reopen, start_cooldown
from controlplane.allocator.events import OperationEnded
from controlplane.allocator.quota_room import learn_refusal
from controlplane.allocator.state import Allocator, Doubt, Kind, Operation, Pool, Shortage
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds import outcomes
from runtime.backoff import pause_after

UNEXPLAINED = "look up the cloud's message and correct its cause"


def learn_outcome(allocator: Allocator, event: OperationEnded) -> Allocator:
    pool = allocator.pools.get(event.pool)
    if pool is None or pool.operation is None or pool.operation.number != event.operation:
        return allocator
    operation, now_s = pool.operation, event.at_s
    allocator = replace(allocator, quiet_since_s=now_s)
    still_granted = pool.granted and not operation.raises
    pool = replace(pool, operation=None, touched=allocator.listing.number, granted=still_granted)
    match event.outcome:
        case outcomes.Done():
            return _done(allocator, pool, operation, now_s)
        case outcomes.PartlyDone(size, reason):
            allocator = close_for(allocator, pool.offer.kind, reason, now_s)
            granted = replace(operation, target=min(size, operation.target))
            return _put(allocator, replace(_as_asked(pool, granted), granted=True, resizing=True))
        case outcomes.StockedOut(detail):
            allocator = close(allocator, pool.offer.kind, Shortage.STOCKOUT, detail, now_s)
            return _continues(allocator, pool, operation, detail, now_s)
        case outcomes.Unfinished(detail):
            if operation.raises:
                allocator = close(allocator, pool.offer.kind, Shortage.STOCKOUT, detail, now_s)
                pool = replace(_as_asked(pool, operation), hanging_s=now_s, last_error=detail, resizing=True)
                return _put(allocator, pool)
            return _unsure(allocator, pool, operation, detail, now_s, settles_s=now_s)
        case outcomes.QuotaExceeded():
            return _over_quota(allocator, pool, operation, event.outcome, now_s)
        case outcomes.Refused(detail, hint):
            if operation.raises:
                allocator = close(allocator, pool.offer.kind, Shortage.REFUSED, detail, now_s, hint=hint)
            return _unsure(allocator, pool, operation, detail, now_s, settles_s=now_s)
        case outcomes.AlreadyExists(detail):
            return _unsure(allocator, pool, operation, detail, now_s, settles_s=now_s)
        case outcomes.NotFound(detail):
            if operation.kind is Kind.CREATE:
                allocator = replace(allocator, clusters={**allocator.clusters, pool.ref.cluster: False})
            return _unsure(allocator, pool, operation, detail, now_s, settles_s=now_s)
        case outcomes.Unreachable(detail):
            settles_s = now_s + allocator.settings.doubt_s
            if operation.raises:
                allocator = start_cooldown(allocator, pool.offer.kind, now_s)
            return _unsure(allocator, pool, operation, detail, now_s, settles_s=settles_s)
        case outcomes.Unexplained(detail):
            if operation.raises and pool.failures + 1 >= allocator.settings.unexplained_tries:
                allocator = close(allocator, pool.offer.kind, Shortage.REFUSED, detail, now_s, hint=UNEXPLAINED)
            return _unsure(allocator, pool, operation, detail, now_s, settles_s=now_s)
        case outcomes.Busy(detail) | outcomes.Throttled(detail):
            return _put(allocator, _later(allocator, pool, detail, now_s))
        case _:
            assert_never(event.outcome)


def _over_quota(
    allocator: Allocator, pool: Pool, operation: Operation, refused: outcomes.QuotaExceeded, now_s: float
) -> Allocator:
    """Request once, at once, the nodes that fit by the cloud's answer; otherwise stop requests for this kind.

    A refused request changed nothing. An operation that ran out of quota may have changed the pool.
    """
    asked = operation.target - operation.before
    allocator, fits = learn_refusal(allocator, pool, asked, refused, now_s)
    pool = replace(pool, last_error=refused.detail)
    if refused.in_call and fits and not pool.requests_fewer:
        return _put(allocator, replace(pool, requests_fewer=True))
    pool, until_s = replace(pool, requests_fewer=False), _room_s(allocator, pool.offer.kind, now_s)
    allocator = close(allocator, pool.offer.kind, Shortage.QUOTA, refused.detail, now_s, until_s=until_s)
    if not refused.in_call:
        pool = _doubted(allocator, pool, operation, refused.detail, now_s)
    return _put(allocator, pool)


def _room_s(allocator: Allocator, stock: MachineKind, now_s: float) -> float | None:
    """When lost or noticed nodes of the region will be gone and their quotas free; None if there are none.

    At most the ordinary pause: a node with a long notice is removed earlier, when the job has left it.
    """
    going_s = [
        max(now_s, node.notice_until_s or now_s)
        for pool in allocator.pools.values()
        if pool.offer.kind.region == stock.region
        for node in pool.nodes.values()
        if not node.is_sound
    ]
    settings = allocator.settings
    return min(max(going_s) + settings.stockout_s, now_s + settings.quota_s) if going_s else None


def _done(allocator: Allocator, pool: Pool, operation: Operation, now_s: float) -> Allocator:
    if operation.kind is Kind.DELETE:
        pools = {ref: other for ref, other in allocator.pools.items() if ref != pool.ref}
        return replace(allocator, pools=pools, deleted={**allocator.deleted, pool.ref: allocator.listing.number})
    done = _as_asked(pool, operation)
    if operation.raises:
        allocator, done = reopen(allocator, pool.offer.kind), replace(done, filled_s=now_s)
    if operation.kind is Kind.REMOVE:
        why = "the cloud may have ignored nodes that no longer existed and kept their slots"
        done = _doubted(allocator, done, operation, why, now_s, done=True)
    return _put(allocator, done)


def _continues(allocator: Allocator, pool: Pool, operation: Operation, detail: str, now_s: float) -> Allocator:
    """The pool has the requested target, and the cloud continues to try."""
    if operation.kind in (Kind.CREATE, Kind.RESIZE):
        return _put(allocator, replace(_as_asked(pool, operation), last_error=detail))
    return _unsure(allocator, pool, operation, detail, now_s, settles_s=now_s)


def _as_asked(pool: Pool, operation: Operation) -> Pool:
    uids = {name: pool.nodes[name].uid if name in pool.nodes else "" for name in operation.nodes}
    return replace(
        pool,
        exists=True,
        target=operation.target,
        vacant={name: since_s for name, since_s in pool.vacant.items() if name not in operation.vacant},
        nodes={name: node for name, node in pool.nodes.items() if name not in operation.nodes},
        removed=pool.removed | frozenset(uids.items()),
        hanging_s=None,
        abandoned=False,
        failures=0,
        retry_s=None,
        last_error="",
        requests_fewer=False,
    )


def _unsure(
    allocator: Allocator, pool: Pool, operation: Operation, detail: str, now_s: float, *, settles_s: float
) -> Allocator:
    return _put(allocator, _later(allocator, _doubted(allocator, pool, operation, detail, settles_s), detail, now_s))


def _later(allocator: Allocator, pool: Pool, detail: str, now_s: float) -> Pool:
    settings = allocator.settings
    retry_s = now_s + pause_after(pool.failures + 1, settings.retry_s, settings.retry_max_s)
    return replace(pool, failures=pool.failures + 1, retry_s=retry_s, last_error=detail)


def _doubted(
    allocator: Allocator, pool: Pool, operation: Operation, detail: str, settles_s: float, *, done: bool = False
) -> Pool:
    most = max(operation.before, operation.target)
    return replace(pool, doubt=Doubt(most, detail, allocator.listing.number, settles_s, done))


def _put(allocator: Allocator, pool: Pool) -> Allocator:
    return replace(allocator, pools={**allocator.pools, pool.ref: pool})
