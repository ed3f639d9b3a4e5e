"""Stories of the core of pods: what is reported, created and deleted."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.cluster.events import ClusterEvent, NodeGone, NodeSeen, PlaceEnded, PlaceFailed, PlaceSeen, PlaceStarted
from agents.cluster.kubernetes.decide import NEW, NO_POD, decide, node_is_gone
from agents.cluster.kubernetes.effects import CreatePod, DeletePod, PodEffect, ReadNode, Report, StopCreating
from agents.cluster.kubernetes.events import (
    CreateRefused,
    CreateStopped,
    DeleteAnswered,
    EndRequested,
    Listed,
    NodeObserved,
    NodeRead,
    NodeVanished,
    PodCreated,
    PodEvent,
    PodSeen,
    PodVanished,
    StartRequested,
    Ticked,
)
from agents.cluster.kubernetes.observations import PodObservation, Stage
from agents.cluster.kubernetes.state import PodRules, Pods
from messages.clusters import NodeObservation, WorkerTemplate
from messages.ids import JobName

JOB = JobName("story")
UID = "w1x1"
WALL_S = 1_000_000.0
TEMPLATE = WorkerTemplate()


def a_pod(stage: Stage = Stage.RUNNING, uid: str = UID, **changes: Any) -> PodObservation:
    return PodObservation(uid, f"pod-of-{uid}", JOB, stage, node=changes.pop("node", "n1"), **changes)


def at_wall(seconds: float) -> datetime:
    return datetime.fromtimestamp(WALL_S + seconds, UTC)


class Story:
    """Plays events into the core; the wall clock and the monotonic clock run together."""

    def __init__(self, state: Pods | None = None) -> None:
        self.state = state or Pods()
        self.effects: list[PodEffect] = []
        """Of the last event."""
        self.facts: list[ClusterEvent] = []
        self.wake_at_s: float | None = None

    def happens(self, event: PodEvent) -> list[PodEffect]:
        decision = decide(self.state, event)
        self.state, self.wake_at_s = decision.state, decision.wake_at_s
        self.effects = [effect for effect in decision.effects if not isinstance(effect, Report)]
        self.facts = [effect.fact for effect in decision.effects if isinstance(effect, Report)]
        return self.effects

    def sees(self, pod: PodObservation, at_s: float = 0.0) -> list[PodEffect]:
        return self.happens(PodSeen(at_s, WALL_S + at_s, pod))


def running() -> Story:
    story = Story()
    story.sees(a_pod())
    return story


def test_a_place_is_created_once_and_reported_when_the_api_answers() -> None:
    story = Story()
    assert story.happens(StartRequested(0.0, UID, JOB, TEMPLATE)) == [CreatePod(UID, JOB, TEMPLATE)]
    assert story.happens(Ticked(1.0)) == []
    assert story.happens(PodCreated(2.0, UID, "p1")) == []
    assert story.facts == [
        PlaceStarted(2.0, UID, 0, "p1", JOB),
        PlaceSeen(2.0, UID, "", mute=True, waits_for=NEW),
    ]
    assert story.happens(Ticked(3.0)) == [] and story.facts == []


def test_a_pod_that_the_api_refuses_has_failed_and_nothing_is_deleted() -> None:
    story = Story()
    story.happens(StartRequested(0.0, UID, JOB, TEMPLATE))
    why = "no such quantity"
    assert story.happens(CreateRefused(1.0, UID, why)) == []
    assert story.facts == [PlaceFailed(1.0, UID, why)]


def test_an_end_during_the_creation_waits_for_it_but_not_for_ever() -> None:
    story = Story()
    story.happens(StartRequested(0.0, UID, JOB, TEMPLATE))
    assert story.happens(EndRequested(1.0, UID, 5.0)) == [StopCreating(UID)]
    stopped = Story(story.state)
    assert stopped.happens(CreateStopped(2.0, UID)) == [DeletePod(UID, 5, within_s=5.0)]
    assert stopped.happens(DeleteAnswered(3.0, UID, missing=True)) == []
    assert stopped.facts == [PlaceEnded(3.0, UID, NO_POD)]

    assert story.wake_at_s == 21.0
    assert story.happens(Ticked(21.0)) == [DeletePod(UID, 5, within_s=5.0)]


def test_a_place_without_a_pod_has_ended_which_is_reported_once() -> None:
    story = Story()
    story.happens(EndRequested(0.0, UID, 5.0))
    story.happens(DeleteAnswered(1.0, UID, missing=True))
    assert story.facts == [PlaceEnded(1.0, UID, NO_POD)]
    assert story.happens(EndRequested(2.0, UID, 5.0)) == [] and story.facts == []


def test_a_deletion_by_somebody_else_is_a_notice_and_ours_is_none() -> None:
    story, leaving = running(), a_pod(deleted_at=at_wall(12.0))
    story.sees(leaving, at_s=2.0)
    assert [fact.notice_s for fact in story.facts if isinstance(fact, PlaceSeen)] == [10.0]

    story = running()
    story.happens(EndRequested(1.0, UID, 5.0))
    story.sees(leaving, at_s=2.0)
    assert [fact.notice_s for fact in story.facts if isinstance(fact, PlaceSeen)] == [None]


def test_a_second_request_removes_a_pod_that_its_node_cannot_end() -> None:
    story = running()
    story.happens(NodeObserved(0.0, NodeObservation("n1", ready=False)))
    assert story.happens(EndRequested(1.0, UID, 5.0)) == [DeletePod(UID, 5, within_s=5.0)]
    story.happens(DeleteAnswered(1.1, UID))
    story.sees(a_pod(deleted_at=at_wall(6.0)), at_s=1.2)
    assert story.happens(EndRequested(11.0, UID, 5.0)) == [DeletePod(UID, 0, within_s=5.0)]


def test_a_pod_that_ended_is_reported_and_its_object_deleted_until_it_is_gone() -> None:
    story = running()
    assert story.sees(a_pod(Stage.ENDED, why="exited with 3"), 1.0) == [DeletePod(UID, 0, f"pod-of-{UID}")]
    assert story.facts == [PlaceEnded(1.0, UID, "exited with 3")]
    story.happens(DeleteAnswered(2.0, UID))
    assert story.wake_at_s == 16.0
    assert story.happens(Ticked(16.0)) == [DeletePod(UID, 0, f"pod-of-{UID}")]
    story.happens(PodVanished(17.0, a_pod(Stage.ENDED)))
    assert story.facts == [] and story.effects == []


def test_a_pod_that_lived_between_two_looks_is_reported_as_alive_before_its_end() -> None:
    story = Story()
    story.sees(a_pod(Stage.WAITING, node=""))
    story.sees(a_pod(Stage.ENDED, why="exited with 1"), 1.0)
    assert story.facts == [PlaceSeen(1.0, UID, "n1"), PlaceEnded(1.0, UID, "exited with 1")]


def test_what_an_agent_left_behind_is_ended_and_not_reported_before_it_has() -> None:
    story = running()
    assert story.sees(a_pod(Stage.ABANDONED, why="agent exited"), 1.0) == [DeletePod(UID, 10, f"pod-of-{UID}")]
    assert not any(isinstance(fact, PlaceEnded) for fact in story.facts)
    story.happens(PodVanished(5.0, a_pod(Stage.ABANDONED, why="agent exited")))
    assert story.facts == [PlaceEnded(5.0, UID, "agent exited")]


def test_an_agent_without_a_host_may_leave_by_itself_for_a_while() -> None:
    story = Story(Pods(PodRules(hostless_s=20.0)))
    story.sees(a_pod())
    story.sees(a_pod(Stage.HOSTLESS, why="host exited"), 1.0)
    assert (story.effects, story.wake_at_s) == ([], 21.0)
    assert story.happens(Ticked(21.0)) == [DeletePod(UID, 0, f"pod-of-{UID}")]

    story = Story(Pods(PodRules(hostless_s=20.0)))
    story.sees(a_pod(Stage.HOSTLESS, why="host exited"), 1.0)
    assert story.sees(a_pod(Stage.ENDED, why="agent exited"), 2.0) == [DeletePod(UID, 0, f"pod-of-{UID}")]
    assert story.wake_at_s is None


def test_pods_end_with_their_machine_but_not_those_of_the_next_machine_of_its_name() -> None:
    story = Story()
    old, new = a_pod(scheduled_at=at_wall(1.0)), a_pod(uid="w2x1", scheduled_at=at_wall(9.0))
    for pod in (old, new, a_pod(uid="w3x1", node="n2", scheduled_at=at_wall(1.0))):
        story.sees(pod)
    assert story.happens(NodeVanished(10.0, "n1")) == [ReadNode("n1", (UID, "w2x1"))]
    assert story.facts == [NodeGone(10.0, "n1")]
    assert story.happens(NodeRead(11.0, "n1", (UID, "w2x1"), at_wall(8.0))) == [DeletePod(UID, 0, f"pod-of-{UID}")]
    assert story.facts == [PlaceEnded(11.0, UID, node_is_gone("n1"))]


def test_what_is_not_there_when_all_pods_are_listed_ended_while_nobody_watched() -> None:
    story = Story(Pods(expected=(UID, "w2x1")))
    story.happens(NodeObserved(0.0, NodeObservation("n2", ready=True)))
    story.sees(a_pod(scheduled_at=at_wall(0.0)))
    assert story.happens(Listed(1.0)) == [ReadNode("n1", (UID,))]
    kinds = [type(fact).__name__ for fact in story.facts]
    assert kinds == ["PlaceEnded", "ViewSynced"]
    assert "w2x1" in str(story.facts[0])


def test_a_node_is_reported_when_something_matters_and_not_while_its_notice_runs_down() -> None:
    story, observation = Story(), NodeObservation("n1", ready=True, notice_s=30.0)
    story.happens(NodeObserved(0.0, observation, "100"))
    assert story.facts == [NodeSeen(0.0, observation)]
    story.happens(NodeObserved(5.0, NodeObservation("n1", ready=True, notice_s=25.0), "100"))
    assert story.facts == []
    story.happens(NodeObserved(6.0, NodeObservation("n1", ready=True, notice_s=10.0), "86"))
    assert len(story.facts) == 1


uids = st.sampled_from([UID, "w2x1", "w3x1"])
nodes = st.sampled_from(["n1", "n2"])
pods = st.builds(
    lambda uid, stage, node, deleted_s: a_pod(
        stage, uid, node=node, deleted_at=None if deleted_s is None else at_wall(deleted_s), scheduled_at=at_wall(5.0)
    ),
    uids,
    st.sampled_from(Stage),
    nodes,
    st.none() | st.floats(0, 60),
)
steps = st.one_of(
    st.builds(lambda uid: EndRequested(0.0, uid, 5.0), uids),
    st.builds(lambda pod: PodSeen(0.0, WALL_S, pod), pods),
    st.builds(lambda pod: PodVanished(0.0, pod), pods),
    st.builds(lambda node, ready: NodeObserved(0.0, NodeObservation(node, ready=ready)), nodes, st.booleans()),
    st.builds(lambda node: NodeVanished(0.0, node), nodes),
    st.builds(lambda node, uid, s: NodeRead(0.0, node, (uid,), at_wall(s)), nodes, uids, st.floats(0, 10)),
    st.just(Listed(0.0)),
    st.builds(lambda uid: PodCreated(0.0, uid, "p"), uids),
    st.builds(lambda uid, missing: DeleteAnswered(0.0, uid, missing), uids, st.booleans()),
    st.just(Ticked(0.0)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 30), steps), max_size=40))
def test_no_order_of_events_reports_an_end_twice_or_makes_the_loop_spin(story: list[tuple[float, PodEvent]]) -> None:
    state, now_s, ended = Pods(), 0.0, set()
    for uid in (UID, "w2x1"):
        state = decide(state, StartRequested(now_s, uid, JOB, TEMPLATE)).state
    for pause_s, event in story:
        now_s += pause_s
        moved: Any = {"at_s": now_s, "wall_s": WALL_S + now_s} if isinstance(event, PodSeen) else {"at_s": now_s}
        decision = decide(state, replace(event, **moved))
        state = decision.state
        facts = [effect.fact for effect in decision.effects if isinstance(effect, Report)]
        for fact in facts:
            if isinstance(fact, PlaceEnded | PlaceFailed | PlaceStarted | PlaceSeen):
                assert fact.uid not in ended, "nothing is reported of a place after its end"
            if isinstance(fact, PlaceEnded | PlaceFailed):
                ended.add(fact.uid)
        assert not ended & set(state.places)
        again = decide(state, Ticked(now_s))
        assert again.effects == (), "the same moment teaches nothing new"
        assert again.wake_at_s is None or again.wake_at_s > now_s
