"""What the core makes of nodes, and of places that somebody else keeps alive."""

from agents.cluster.effects import EndPlace, SendTopology, StartPlace, TellNotice
from agents.cluster.events import (
    BusBack,
    BusLost,
    KeepAsked,
    NodeGone,
    NodeSeen,
    PlaceEnded,
    PlaceSeen,
    PlaceStarted,
    Ticked,
    ViewSynced,
    WorkerHeard,
)
from agents.cluster.state import Rules, Stage, new_cluster
from messages.clusters import NodeObservation, Presence, StartFailure
from messages.ids import Epoch
from tests.cluster.builders import JOB, LOCAL, Story, a_controller, a_controller_with, a_status, keep

SPEAK_WITHIN_S = Rules().speak_within_s


def a_node(name: str = "n1", *, ready: bool = True, uid: str = "u1", notice_s: float | None = None) -> NodeObservation:
    return NodeObservation(name, uid=uid, zone="z1", pool="p1", job=JOB, ready=ready, notice_s=notice_s)


def an_unsynced_controller() -> Story:
    return Story(new_cluster(LOCAL, "abc123", "here", 100.0, synced=False)).happens(Ticked(100.0))


def a_place_on(node: str, *, spoke: bool = True) -> Story:
    """One worker, on a node that is ready."""
    story = a_controller().keeps(1).after(0.1)
    story.happens(NodeSeen(story.now_s, a_node(node)), PlaceSeen(story.now_s, story.uids[0], node))
    if spoke:
        story.all_speak()
    return story.after(0.1).forgets_effects()


def notices(story: Story) -> list[TellNotice]:
    return [effect for effect in story.effects if isinstance(effect, TellNotice)]


def test_nothing_is_started_ended_or_told_before_everything_was_seen() -> None:
    story = an_unsynced_controller().keeps(2).after(5.0)
    assert story.answer is not None
    assert story.answer.ok
    assert not [effect for effect in story.effects if isinstance(effect, StartPlace | EndPlace | SendTopology)]
    story.happens(ViewSynced(story.now_s)).after(0.1)
    assert len(story.started) == 2
    assert story.topologies


def test_an_unsynced_controller_does_not_wake_itself_for_nothing() -> None:
    assert an_unsynced_controller().wake_at_s is None


def test_a_place_that_nobody_remembers_is_taken_over_and_counts() -> None:
    story = an_unsynced_controller()
    story.happens(PlaceStarted(story.now_s, "wold1x1", 0, "pod-uid", JOB), ViewSynced(story.now_s))
    story.keeps(2).after(0.1)
    assert len(story.started) == 1
    assert story.state.places["wold1x1"].stage is Stage.RUNNING
    assert any(place.uid == "wold1x1" for place in story.saved.places)


def test_more_places_than_wanted_may_be_taken_over_and_none_is_ended() -> None:
    story = an_unsynced_controller().keeps(1)
    for number in range(3):
        story.happens(PlaceStarted(story.now_s, f"wold1x{number}", 0, "pod-uid", JOB))
    story.happens(ViewSynced(story.now_s)).after(0.1)
    assert len(story.uids) == 3
    assert story.started == []
    assert story.ended == []


def test_a_place_that_has_ended_is_not_taken_over_again() -> None:
    story = a_controller_with(1)
    uid = story.uids[0]
    story.ends(uid).happens(PlaceStarted(story.now_s, uid, 0, "pod-uid", JOB))
    assert uid not in story.uids


def test_a_place_that_waits_for_a_machine_is_not_ended_for_its_silence_and_says_what_it_waits_for() -> None:
    story = a_controller().keeps(1).after(0.1)
    uid = story.uids[0]
    waits_for = "0/3 nodes are available"
    story.happens(PlaceSeen(story.now_s, uid, "", mute=True, waits_for=waits_for)).after(3 * SPEAK_WITHIN_S)
    assert story.ended == []
    observation = story.observation(f"{uid}-0000")
    assert observation is not None
    assert (observation.presence, observation.why) == (Presence.STARTING, waits_for)


def test_the_time_to_speak_begins_when_a_place_waits_for_nothing_any_more() -> None:
    story = a_controller().keeps(1).after(0.1)
    uid = story.uids[0]
    story.happens(PlaceSeen(story.now_s, uid, "", mute=True, waits_for="no machine")).after(SPEAK_WITHIN_S * 2)
    story.happens(PlaceSeen(story.now_s, uid, "n1")).after(SPEAK_WITHIN_S - 1)
    assert story.ended == []
    story.after(2)
    assert story.ended == [uid]


def test_a_place_that_waited_long_and_then_died_at_once_died_young() -> None:
    story = a_controller().keeps(1).after(0.1)
    uid = story.uids[0]
    story.happens(PlaceSeen(story.now_s, uid, "", mute=True, waits_for="no machine")).after(30).forgets_effects()
    story.happens(PlaceSeen(story.now_s, uid, "n1"), PlaceEnded(story.now_s, uid, "exited with 1")).after(0.2)
    assert story.started == []
    story.after(1.0)
    assert len(story.started) == 1


def test_nodes_are_told_with_the_topology_at_once() -> None:
    story = a_controller().after(0.1).forgets_effects()
    story.happens(NodeSeen(story.now_s, a_node())).after(0.05)
    assert story.topologies[0].nodes == (a_node(),)
    story.happens(NodeGone(story.now_s, "n1")).after(0.05)
    assert story.topologies[-1].nodes == ()


def test_a_node_that_was_ready_is_told_from_one_that_still_starts() -> None:
    story = a_controller().happens(NodeSeen(100.0, a_node("n1")), NodeSeen(100.0, a_node("n2", ready=False)))
    story.happens(NodeSeen(story.now_s, a_node("n1", ready=False))).after(0.1)
    assert {node.node: node.was_ready for node in story.topologies[-1].nodes} == {"n1": True, "n2": False}
    story.happens(NodeSeen(story.now_s, a_node("n1", ready=False, uid="u2"))).after(0.1)
    assert not any(node.was_ready for node in story.topologies[-1].nodes)


def test_the_notice_of_a_node_is_told_once_for_each_worker_on_it_and_runs_down_in_the_topology() -> None:
    story = a_place_on("n1")
    worker = f"{story.uids[0]}-aaaa"
    story.happens(NodeSeen(story.now_s, a_node(notice_s=30.0)))
    assert [(reported.worker, reported.source) for reported in notices(story)] == [(worker, "node")]
    assert notices(story)[0].remaining_s == 15.0
    story.happens(NodeSeen(story.now_s + 1.0, a_node(notice_s=29.0))).after(20.0, all_beat=True)
    assert len(notices(story)) == 1
    assert story.topologies[-1].nodes[0].notice_s is not None
    assert story.topologies[-1].nodes[0].notice_s < 11.0
    observation = story.observation(worker)
    assert observation is not None
    assert observation.status is not None
    assert observation.status.notice_s is not None


def test_a_worker_on_a_node_with_a_notice_is_replaced_before_it_is_gone() -> None:
    story = a_place_on("n1")
    story.happens(NodeSeen(story.now_s, a_node(notice_s=30.0))).after(0.1)
    assert len(story.started) == 1
    assert story.ended == []


def test_a_worker_that_comes_to_speak_after_the_notice_is_told_then() -> None:
    story = a_place_on("n1", spoke=False)
    story.happens(NodeSeen(story.now_s, a_node(notice_s=30.0)))
    assert notices(story) == []
    story.speaks(story.uids[0])
    assert len(notices(story)) == 1


def test_a_notice_that_comes_while_the_bus_is_away_is_told_when_it_is_back() -> None:
    story = a_place_on("n1")
    story.happens(BusLost(story.now_s), NodeSeen(story.now_s, a_node(notice_s=30.0)))
    assert notices(story) == []
    story.now_s += 20.0
    story.happens(BusBack(story.now_s))
    assert [reported.remaining_s for reported in notices(story)] == [10.0]


def test_a_worker_that_told_its_notice_itself_is_not_told_of_again() -> None:
    story = a_place_on("n1")
    story.speaks(story.uids[0])
    uid = story.uids[0]
    story.happens(WorkerHeard(story.now_s, a_status(f"{uid}-aaaa", 100, notice_s=15.0)))
    story.happens(NodeSeen(story.now_s, a_node(notice_s=30.0)))
    assert notices(story) == []


def test_a_pod_that_somebody_else_ends_is_a_notice() -> None:
    story = a_place_on("n1")
    story.happens(PlaceSeen(story.now_s, story.uids[0], "n1", notice_s=12.0))
    assert [(reported.remaining_s, reported.source) for reported in notices(story)] == [(12.0, "pod")]


def test_a_pod_that_we_end_is_no_notice() -> None:
    story = a_place_on("n1")
    uid = story.uids[0]
    story.removes(f"{uid}-aaaa").happens(PlaceSeen(story.now_s, uid, "n1", notice_s=12.0))
    assert story.ended == [uid]
    assert notices(story) == []


def test_the_next_machine_of_the_same_name_has_no_notice() -> None:
    story = a_place_on("n1")
    story.happens(NodeSeen(story.now_s, a_node(notice_s=30.0)), NodeSeen(story.now_s, a_node(uid="u2"))).after(0.1)
    assert story.topologies[-1].nodes[0].notice_s is None


def test_a_silent_worker_on_a_node_that_is_not_ready_is_replaced() -> None:
    story = a_place_on("n1")
    uid = story.uids[0]
    story.happens(NodeSeen(story.now_s, a_node(ready=False))).after(15.0)
    assert uid in story.ended
    assert len(story.started) == 1


def test_a_worker_that_speaks_is_left_alone_on_a_node_that_is_not_ready() -> None:
    story = a_place_on("n1")
    story.happens(NodeSeen(story.now_s, a_node(ready=False))).after(60.0, all_beat=True)
    assert story.ended == []


def test_a_silent_worker_on_a_ready_node_is_left_alone() -> None:
    story = a_place_on("n1").after(60.0)
    assert story.ended == []


def test_a_place_that_dies_after_a_notice_makes_nobody_wait() -> None:
    story = a_place_on("n1", spoke=False)
    uid = story.uids[0]
    story.happens(NodeSeen(story.now_s, a_node(notice_s=30.0)), PlaceEnded(story.now_s, uid, "its node is gone"))
    assert JOB not in story.state.backoffs


def test_commands_before_everything_was_seen_are_obeyed_after() -> None:
    story = an_unsynced_controller()
    story.happens(PlaceStarted(story.now_s, "wold1x1", 0, "pod-uid", JOB))
    story.happens(KeepAsked(story.now_s, keep(0), Epoch(1)))
    assert story.ended == []
    story.happens(ViewSynced(story.now_s))
    assert story.ended == ["wold1x1"]


def test_a_worker_that_does_not_know_its_zone_is_told_of_in_that_of_its_node() -> None:
    story = a_place_on("n1").after(1.1)
    [observation] = story.topologies[-1].workers
    assert observation.status is not None
    assert observation.status.zone == "z1"


def failing(story: Story) -> StartFailure | None:
    observation = story.observation(f"{story.uids[0]}-0000")
    return observation.start_failure if observation is not None else None


def test_a_failure_to_start_is_told_with_its_age_and_keeps_its_detail_through_a_silent_backoff() -> None:
    story = a_place_on("n1", spoke=False)
    uid, first = story.uids[0], StartFailure("ErrImagePull", "403 Forbidden", "image:1", "n1")
    story.happens(PlaceSeen(story.now_s, uid, "n1", mute=True, failure=first)).after(5.0)
    backoff = StartFailure("ImagePullBackOff", "", "image:1", "n1")
    story.happens(PlaceSeen(story.now_s, uid, "n1", mute=True, failure=backoff)).after(10.0)
    reported = failing(story)
    assert reported is not None
    assert (reported.reason, reported.detail, reported.image, reported.node) == (
        "ImagePullBackOff",
        "403 Forbidden",
        "image:1",
        "n1",
    )
    assert reported.for_s >= 14.0
    story.happens(PlaceSeen(story.now_s, uid, "n1")).after(1.5)
    assert failing(story) is None
