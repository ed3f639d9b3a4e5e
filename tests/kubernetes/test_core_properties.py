"""Whatever is seen of nodes and pods, in whatever order, the core keeps its invariants and does not spin."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.cluster import invariants
from agents.cluster.decide import decide
from agents.cluster.effects import EndPlace, StartPlace, TellNotice
from agents.cluster.events import ClusterEvent, NodeGone, NodeSeen, PlaceSeen, PlaceStarted, Ticked, ViewSynced
from agents.cluster.state import new_cluster
from messages.clusters import NodeObservation
from tests.cluster.builders import JOB, LOCAL
from tests.cluster.test_core_properties import ANY_EVENT, UIDS, at

NODES = st.sampled_from(["n1", "n2"])
AT = st.just(0.0)
NOTICES = st.none() | st.floats(0.0, 60.0)

ANY_OBSERVATION: st.SearchStrategy[ClusterEvent] = st.one_of(
    st.builds(PlaceStarted, AT, UIDS, st.just(0), st.just("pod"), st.just(JOB)),
    st.builds(PlaceSeen, AT, UIDS, NODES | st.just(""), st.booleans(), st.just("no machine"), NOTICES),
    st.builds(
        lambda name, uid, ready, notice_s: NodeSeen(
            0.0, NodeObservation(name, uid=uid, ready=ready, notice_s=notice_s)
        ),
        NODES,
        st.sampled_from(["u1", "u2"]),
        st.booleans(),
        NOTICES,
    ),
    st.builds(NodeGone, AT, NODES),
    st.builds(ViewSynced, AT),
)


@settings(max_examples=300, deadline=None)
@given(st.booleans(), st.lists(st.tuples(ANY_EVENT | ANY_OBSERVATION, st.floats(0.0, 5.0)), max_size=60))
def test_no_order_of_events_breaks_an_invariant_or_makes_the_loop_spin(
    synced: bool, story: list[tuple[ClusterEvent, float]]
) -> None:
    now_s = 100.0
    state = new_cluster(LOCAL, "abc123", "", now_s, synced=synced)
    reported: list[str] = []
    for event, pause_s in story:
        now_s += pause_s
        decision = decide(state, at(event, now_s))
        assert invariants.check(state, decision.state) == []
        blind = [effect for effect in decision.effects if isinstance(effect, StartPlace | EndPlace)]
        assert decision.state.synced or not blind
        reported += [effect.worker for effect in decision.effects if isinstance(effect, TellNotice)]
        again = decide(decision.state, Ticked(now_s))
        assert again.effects == (), "nothing was learned, so nothing is to be done"
        assert decision.wake_at_s is None or decision.wake_at_s > now_s
        state = decision.state
    assert len(reported) == len(set(reported)), "a notice was told twice"
