"""Entry of the core: learns from all waiting events, then reconciles once."""

from msgspec.structs import replace

from agents.cluster.effects import ClusterEffect
from agents.cluster.events import ClusterEvent
from agents.cluster.learn import learn
from agents.cluster.reconcile import only_report, reconcile
from agents.cluster.state import ClusterState
from runtime.decision import Decision


def decide(state: ClusterState, *events: ClusterEvent) -> Decision[ClusterState, ClusterEffect]:
    state = replace(state, answers={}, owned=()) if state.answers or state.owned else state
    for event in events:
        state = learn(state, event)
    now_s = events[-1].at_s
    if not state.stirred and now_s < state.due_at_s:
        # Most events are heartbeats that need at most a report. With ten thousand workers they must cost almost
        # nothing.
        return only_report(state, now_s)
    return reconcile(state, now_s)
