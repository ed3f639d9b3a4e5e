"""What a job gives back to the cloud, so that others that wait for the like need not wait out their pauses."""

from controlplane.allocator.events import AllocatorEvent, OperationEnded
from controlplane.allocator.state import Allocator, Kind
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.outcomes import Done


def given_back(allocator: Allocator, event: AllocatorEvent) -> MachineKind | None:
    """Of which stock this event, yet to be learned, gives machines back.

    A pool that is lowered because it got nothing gives nothing back: jobs that wait for each other would wake each
    other for ever.
    """
    if not isinstance(event, OperationEnded) or not isinstance(event.outcome, Done):
        return None
    pool = allocator.pools.get(event.pool)
    if pool is None or pool.operation is None or pool.operation.number != event.operation:
        return None
    kind = pool.operation.kind
    gives = kind is Kind.REMOVE or (kind is Kind.DELETE and allocator.ended is not None)
    return pool.offer.kind if gives else None
