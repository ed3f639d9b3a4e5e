"""The allocator core's one entry: learn from the event, then reconcile."""

from dataclasses import replace

from controlplane.allocator.effects import AllocatorEffect, FollowMarket, ShareStock
from controlplane.allocator.events import AllocatorEvent, OperationEnded
from controlplane.allocator.learn import learn
from controlplane.allocator.placement import place_of
from controlplane.allocator.reconcile import Turn
from controlplane.allocator.state import Allocator, Kind
from controlplane.allocator.story import announce
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.outcomes import Done
from controlplane.planning.criteria import Criteria
from runtime.decision import Decision


def decide(allocator: Allocator, event: AllocatorEvent) -> Decision[Allocator, AllocatorEffect]:
    """Learn from the event, then reconcile. After a loss, one decision removes the slot and raises another pool."""
    turn = Turn(learn(allocator, event), event.at_s)
    turn.reconcile()
    decided, requested = turn.allocator, list(turn.effects)
    place = place_of(decided, event.at_s)
    if place != decided.placed:
        decided = replace(decided, placed=place)
        requested.append(place)
    criteria = _criteria(decided)
    if criteria is not None and criteria != _criteria(allocator):
        requested.append(FollowMarket(criteria))
    stock = _given_back(allocator, event)
    if stock is not None:
        requested.append(ShareStock(stock))
    announced = announce(allocator, decided, turn.effects)
    return Decision(decided, (*requested, *announced), decided.why, turn.wake_at_s)


def _criteria(allocator: Allocator) -> Criteria | None:
    return allocator.demand.criteria if allocator.demand is not None else None


def _given_back(allocator: Allocator, event: AllocatorEvent) -> MachineKind | None:
    """The kind of machine that this event gives back to the cloud, or None; `allocator` is from before the event.

    A pool that is lowered because it got no machines gives none back: otherwise two jobs that wait for machines would
    wake each other for ever.
    """
    if not isinstance(event, OperationEnded) or not isinstance(event.outcome, Done):
        return None
    pool = allocator.pools.get(event.pool)
    if pool is None or pool.operation is None or pool.operation.number != event.operation:
        return None
    kind = pool.operation.kind
    gives = kind is Kind.REMOVE or (kind is Kind.DELETE and allocator.ended is not None)
    return pool.offer.kind if gives else None
