"""Learn from the event, then reconcile what is known with what is wanted: no fact is acted on only once."""

from agents.cluster.effects import ClusterEffect
from agents.cluster.events import ClusterEvent, WorkerHeard
from agents.cluster.learn import learn
from agents.cluster.reconcile import reconcile
from agents.cluster.state import ClusterState
from runtime.decision import Decision


def decide(state: ClusterState, event: ClusterEvent) -> Decision[ClusterState, ClusterEffect]:
    learned = learn(state, event)
    if isinstance(event, WorkerHeard) and not learned.sending.unsent and event.at_s < learned.due_at_s:
        # Most events are heartbeats that say nothing new: with a thousand workers they must cost next to nothing.
        return Decision(learned, wake_at_s=learned.due_at_s)
    return reconcile(learned, event.at_s)
