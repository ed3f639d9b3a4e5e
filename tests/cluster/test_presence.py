"""The presence of workers: silent workers, gone workers, and workers that were started by hand."""

from agents.cluster.decide import decide
from agents.cluster.effects import EndPlace
from agents.cluster.events import BusBack, BusLost, PlaceStarted, Ticked, WorkerHeard, WorkerSaidLeft
from agents.cluster.state import Rules
from messages.clusters import Presence
from messages.ids import ClusterName, WorkerId
from tests.cluster.builders import a_controller, a_controller_with, a_status, hears


class TestSilence:
    def test_a_worker_is_silent_after_two_seconds_and_alive_when_it_speaks_again(self) -> None:
        story = a_controller_with(1).all_speak()
        worker = f"{story.uids[0]}-aaaa"
        assert story.after(1.9).presence(worker) is Presence.ALIVE
        observation = story.after(0.2).observation(worker)
        assert observation is not None and observation.presence is Presence.SILENT and 2.0 <= observation.silent_s < 2.3
        assert story.speaks(story.uids[0]).after(0.1).presence(worker) is Presence.ALIVE

    def test_silence_is_no_reason_to_replace_or_end_a_worker(self) -> None:
        story = a_controller_with(2).after(300.0)
        assert story.started == [] and story.ended == []

    def test_time_without_the_bus_does_not_count_as_silence(self) -> None:
        story = a_controller_with(1)
        worker = f"{story.uids[0]}-aaaa"
        story.happens(BusLost(story.now_s)).after(60.0).happens(BusBack(story.now_s))
        assert story.presence(worker) is Presence.ALIVE
        assert story.after(1.9).presence(worker) is Presence.ALIVE
        assert story.after(0.2).presence(worker) is Presence.SILENT

    def test_time_in_which_the_controller_was_paused_does_not_count_as_silence(self) -> None:
        story = a_controller_with(1).all_speak().after(0.5)
        worker = f"{story.uids[0]}-aaaa"
        story.is_paused(10.0)
        observation = story.observation(worker)
        assert observation is not None and observation.presence is Presence.ALIVE and observation.silent_s < 0.5
        assert story.after(1.9).presence(worker) is Presence.ALIVE
        assert story.after(0.2).presence(worker) is Presence.SILENT

    def test_a_worker_that_was_silent_before_the_bus_was_lost_stays_silent_until_it_speaks(self) -> None:
        story = a_controller_with(1).after(10.0)
        worker = f"{story.uids[0]}-aaaa"
        story.happens(BusLost(story.now_s)).after(5.0).happens(BusBack(story.now_s)).after(0.5)
        observation = story.observation(worker)
        assert observation is not None and observation.presence is Presence.SILENT and observation.silent_s < 1.0
        assert story.speaks(story.uids[0]).after(0.1).presence(worker) is Presence.ALIVE

    def test_a_heartbeat_that_is_repeated_or_out_of_order_does_not_end_silence(self) -> None:
        story = a_controller_with(1)
        worker = f"{story.uids[0]}-aaaa"
        hears(story, worker, 9).after(2.5)
        assert hears(story, worker, 9).after(0.1).presence(worker) is Presence.SILENT
        assert hears(story, worker, 8).after(0.1).presence(worker) is Presence.SILENT
        assert hears(story, worker, 10).after(0.1).presence(worker) is Presence.ALIVE

    def test_a_heartbeat_with_an_impossible_number_is_ignored_and_the_next_one_counts(self) -> None:
        story = a_controller_with(1)
        worker = f"{story.uids[0]}-aaaa"
        hears(story, worker, 9)
        hears(story, worker, 2**53)
        assert story.state.doubts == 1
        assert hears(story.after(2.5), worker, 10).after(0.1).presence(worker) is Presence.ALIVE

    def test_a_worker_is_silent_at_the_moment_for_which_the_controller_wakes(self) -> None:
        # 126.01 + 2.0 − 126.01 is a little less than 2.0.
        story = a_controller_with(1).all_speak()
        story.after(126.01 - story.now_s).speaks(story.uids[0]).after(0.0)
        decision = decide(story.state, Ticked(126.01 + story.state.rules.silent_after_s))
        assert decision.wake_at_s is not None and decision.wake_at_s > 128.01
        assert decision.state.places[story.uids[0]].silent


class TestGoneWorkers:
    def test_a_late_heartbeat_does_not_revive_a_worker_whose_process_ended(self) -> None:
        story = a_controller_with(1)
        lost = story.uids[0]
        story.ends(lost).speaks(lost).after(0.1)
        assert story.presence(f"{lost}-aaaa") is Presence.GONE and lost not in story.uids

    def test_a_late_first_heartbeat_does_not_revive_a_worker_whose_process_ended(self) -> None:
        story = a_controller().keeps(1)
        lost = story.uids[0]
        story.ends(lost).speaks(lost)
        assert lost not in story.uids

    def test_a_late_heartbeat_does_not_revive_a_worker_that_left(self) -> None:
        story = hears(a_controller(), "byhand-1234")
        story.happens(WorkerSaidLeft(story.now_s, WorkerId("byhand-1234"), "bye"))
        assert hears(story, "byhand-1234", 2).uids == []

    def test_a_late_first_heartbeat_does_not_revive_a_worker_that_left(self) -> None:
        story = a_controller().happens(WorkerSaidLeft(100.0, WorkerId("byhand-1234"), "bye"))
        assert hears(story, "byhand-1234").uids == []

    def test_a_worker_that_left_is_reported_as_gone_once(self) -> None:
        story = a_controller_with(1)
        worker = f"{story.uids[0]}-aaaa"
        story.happens(WorkerSaidLeft(story.now_s, WorkerId(worker), "released")).ends(story.uids[0]).after(0.1)
        observations = [observation for observation in story.topologies[-1].workers if observation.worker == worker]
        assert [observation.why for observation in observations] == ["released"]

    def test_an_agent_that_starts_again_in_the_same_place_is_another_worker(self) -> None:
        story = a_controller_with(1)
        uid = story.uids[0]
        hears(story, f"{uid}-bbbb").after(0.1)
        assert story.presence(f"{uid}-aaaa") is Presence.GONE
        assert story.presence(f"{uid}-bbbb") is Presence.ALIVE
        assert hears(story, f"{uid}-aaaa", 999).after(0.1).presence(f"{uid}-bbbb") is Presence.ALIVE

    def test_the_end_of_an_unknown_place_teaches_nothing(self) -> None:
        story = a_controller_with(1)
        before = story.state
        story.ends("w000000x1")
        assert (story.state.places, story.state.gone) == (before.places, before.gone)


class TestWorkersStartedByHand:
    def test_a_worker_started_by_hand_is_reported_and_counts_as_one_of_those_to_keep(self) -> None:
        story = hears(a_controller(), "byhand-1234").keeps(3).after(0.1)
        assert len(story.started) == 2
        assert story.presence("byhand-1234") is Presence.ALIVE

    def test_a_surplus_worker_started_by_hand_is_ended_by_a_message_to_it(self) -> None:
        story = hears(a_controller(), "byhand-1234").keeps(0)
        ends = [effect for effect in story.effects if isinstance(effect, EndPlace)]
        assert [effect.worker for effect in ends] == ["byhand-1234"]

    def test_a_worker_started_by_hand_that_is_silent_for_long_is_forgotten_and_not_reported_as_gone(self) -> None:
        story = hears(a_controller(), "byhand-1234").after(50.0)
        assert story.presence("byhand-1234") is Presence.SILENT
        assert story.after(12.0).presence("byhand-1234") is None
        assert hears(story, "byhand-1234", 2).after(0.1).presence("byhand-1234") is Presence.ALIVE

    def test_a_worker_of_another_cluster_is_ignored(self) -> None:
        status = a_status("byhand-1234", cluster=ClusterName("elsewhere"))
        assert a_controller().happens(WorkerHeard(100.0, status)).uids == []

    def test_no_more_workers_started_by_hand_are_listed_than_the_controller_may_have_places(self) -> None:
        story = a_controller(rules=Rules(max_places=5))
        for number in range(20):
            hears(story, f"byhand{number}-1234")
        assert len(story.uids) == 5

    def test_a_worker_that_the_shell_recognises_as_one_of_its_own_becomes_its_place(self) -> None:
        story = hears(a_controller(), "wabc000x3-1234").happens(PlaceStarted(100.0, "wabc000x3", 7, "b"))
        assert [place.uid for place in story.saved.places] == ["wabc000x3"]
        assert story.ends("wabc000x3").after(0.1).presence("wabc000x3-1234") is Presence.GONE
