"""The allocator core's one entry: learn from the event, then reconcile."""

from controlplane.allocator.effects import AllocatorEffect
from controlplane.allocator.events import AllocatorEvent
from controlplane.allocator.learn import learn
from controlplane.allocator.reconcile import Turn
from controlplane.allocator.state import Allocator
from controlplane.allocator.story import tell
from runtime.decision import Decision


def decide(allocator: Allocator, event: AllocatorEvent) -> Decision[Allocator, AllocatorEffect]:
    """A loss is answered at once: giving up the lost slot and raising another pool are asked for together."""
    turn = Turn(learn(allocator, event), event.at_s)
    turn.reconcile()
    said = tell(allocator, turn.allocator, turn.effects)
    return Decision(turn.allocator, (*turn.effects, *said), turn.allocator.why, turn.wake_at_s)
