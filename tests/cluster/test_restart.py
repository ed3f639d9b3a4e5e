"""A cluster-controller that stops, and the one that comes after it."""

from agents.cluster.events import PlaceEnded, PlaceStarted, StopAsked, WorkerSaidLeft
from messages.clusters import Presence
from messages.ids import WorkerId
from tests.cluster.builders import a_controller, a_controller_with, hears


class TestRestart:
    def test_adopts_its_workers_and_starts_none(self) -> None:
        known = a_controller_with(3).saved
        story = a_controller(known=known, incarnation="def456")
        for place in known.places:
            story.happens(PlaceStarted(100.0, place.uid, place.pid, place.birth))
        story.after(10.0, all_beat=True)
        assert story.started == [] and story.ended == []
        assert sum(observation.presence is Presence.ALIVE for observation in story.topologies[-1].workers) == 3

    def test_reports_and_replaces_those_that_died_meanwhile_under_their_real_id(self) -> None:
        known = a_controller_with(2).saved
        dead, alive = known.places
        story = a_controller(known=known, incarnation="def456")
        story.happens(PlaceStarted(100.0, alive.uid, alive.pid), PlaceEnded(100.0, dead.uid, "it ended meanwhile"))
        assert story.after(0.1).presence(f"{dead.uid}-aaaa") is Presence.GONE
        assert len(story.started) == 1

    def test_a_worker_that_had_left_stays_gone_while_its_place_is_still_there(self) -> None:
        before = a_controller_with(1)
        worker = WorkerId(f"{before.uids[0]}-aaaa")
        known = before.happens(WorkerSaidLeft(before.now_s, worker, "released")).after(0.1).saved
        story = a_controller(known=known, incarnation="def456")
        story.happens(PlaceStarted(100.0, known.places[0].uid, known.places[0].pid, known.places[0].birth))
        assert hears(story, worker, 9).after(0.1).presence(worker) is Presence.GONE

    def test_claims_nothing_of_a_worker_that_has_not_spoken_to_it(self) -> None:
        known = a_controller_with(1).saved
        story = a_controller(known=known, incarnation="def456").after(1.0)
        assert story.topologies[-1].workers == ()
        assert story.speaks(known.places[0].uid).after(0.1).presence(f"{known.places[0].uid}-aaaa") is Presence.ALIVE

    def test_a_place_that_was_saved_but_never_started_is_replaced_under_a_new_uid(self) -> None:
        story = a_controller()
        story.starts = False
        known = story.keeps(1).saved
        assert known.places[0].pid == 0
        again = a_controller(known=known, incarnation="def456").ends(known.places[0].uid, "it was never started")
        assert known.places[0].uid not in again.after(1.0).started and len(again.started) == 1

    def test_uids_are_never_used_twice_even_when_the_record_was_lost(self) -> None:
        first = a_controller(incarnation="abc123").keeps(5)
        second = a_controller(incarnation="def456").keeps(5)
        assert len({*first.started, *second.started}) == 10

    def test_the_one_that_was_not_told_of_a_gone_worker_is_told_by_the_next_controller(self) -> None:
        first = a_controller_with(1).keeps(0)
        lost = first.uids[0]
        known = first.ends(lost).saved
        assert a_controller(known=known, incarnation="def456").presence(f"{lost}-aaaa") is Presence.GONE

    def test_its_record_names_the_new_incarnation_at_once(self) -> None:
        known = a_controller_with(1).saved
        assert a_controller(known=known, incarnation="def456").saved.incarnation == "def456"


class TestStopping:
    def test_ends_every_place_that_was_started_here_and_starts_none(self) -> None:
        story = hears(a_controller_with(2), "byhand-1234").forgets_effects()
        own = [place.uid for place in story.places if place.ours]
        story.happens(StopAsked(story.now_s, "SIGTERM"))
        assert story.ended == own
        for uid in own:
            story.ends(uid)
        assert story.after(5.0).started == []

    def test_remembers_what_was_wanted_for_the_next_start(self) -> None:
        story = a_controller_with(2).happens(StopAsked(100.5, "SIGTERM"))
        for uid in story.uids:
            story.ends(uid)
        assert len(a_controller(known=story.saved, incarnation="def456").started) == 2
