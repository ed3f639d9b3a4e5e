"""Trainers that must park or end, in the worker-agent's core."""

from agents.worker.commands import Park
from agents.worker.effects import FlushProgress, Leave, LookAtTrainers, SendHeartbeat, StopTrainers, TellFact
from agents.worker.events import CheckpointWritten, TrainerDetached, TrainersSeen, TrainersStopped
from messages.ids import Generation, Rank
from messages.workers import TrainerExit, WorkerPhase, WrittenCheckpoint
from tests.worker.builders import (
    ELSEWHERE,
    OWN,
    WITH_US,
    Story,
    a_halt,
    a_live_worker,
    a_parked_worker,
    a_plan,
    a_release,
    a_training_worker,
    in_world,
    parked_at,
)


def test_a_halt_reaches_attached_trainers_at_once_and_ends_none() -> None:
    story = a_live_worker(1).hears(a_halt(2))
    assert story.words == [(0, Park(Generation(2))), (1, Park(Generation(2)))]
    assert not any(isinstance(effect, StopTrainers) for effect in story.last)
    assert (story.state.phase, story.state.generation) == (WorkerPhase.STOPPING, 1)


def test_a_worker_parks_when_its_last_trainer_has_in_one_message() -> None:
    story = a_live_worker(1).hears(a_halt(2)).reports_status(parked_at(2, 1), 0)
    assert story.facts == []
    story.reports_status(parked_at(2, 1, rank=1), 1)
    assert story.facts == ["parked"]
    assert [status.parked for status in story.sent.status.trainers] == [2, 2]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.PARKED, 2)
    assert [type(effect) for effect in story.last] == [TellFact, FlushProgress]


def _looks(story: Story) -> int:
    return sum(isinstance(effect, LookAtTrainers) for effect in story.last)


def _sees(story: Story, *local_ranks: int) -> Story:
    """Reports that the kernel shows these trainers as running; without ranks all."""
    running = frozenset(t.birth for t in story.state.trainers if not local_ranks or t.local_rank in local_ranks)
    return story.happens(TrainersSeen(story.now_s, running))


def test_trainers_that_park_at_once_are_not_looked_at() -> None:
    story = a_live_worker(1).hears(a_halt(2)).after(0.05).reports_status(parked_at(2, 1))
    assert story.facts == ["parked"]
    assert _looks(story.after(0.5)) == 0


def test_trainers_that_are_slow_to_park_are_looked_at_until_they_have() -> None:
    story = a_live_worker(1).hears(a_halt(2))
    assert _looks(story.after(0.45)) == 4
    story.reports_status(parked_at(2, 1))
    assert _looks(story.after(0.5)) == 0


def test_a_halt_that_is_said_again_has_the_trainers_looked_at_at_once() -> None:
    story = a_live_worker(1).hears(a_halt(2))
    assert _looks(story) == 0
    assert _looks(story.hears(a_halt(2))) == 1
    assert _looks(story.reports_status(parked_at(2, 1)).hears(a_halt(2))) == 0


def test_trainers_that_run_are_told_to_be_parking() -> None:
    story = a_live_worker(1).hears(a_halt(2)).after(0.1).reports_status(parked_at(2, 1), 0)
    assert _sees(story).facts == ["parking"]
    assert [(t.parked, t.parking) for t in story.sent.status.trainers] == [(2, 0), (0, 2)]
    assert _sees(story.after(0.1)).facts == ["parking"]
    story.reports_status(in_world(1, 1, broken=1), 1)
    assert [t.parking for t in story.sent.status.trainers] == [0, 2]


def test_nothing_is_said_for_trainers_that_are_stopped() -> None:
    story = a_live_worker(1).hears(a_halt(2)).after(0.1)
    assert _sees(story, 0).facts == []
    _sees(story)
    assert _sees(story.after(0.1), 0).facts == []
    beats = [effect for effect in story.after(1.0).last if isinstance(effect, SendHeartbeat)]
    assert [t.parking for t in beats[0].status.trainers] == [2, 0]


def test_a_look_at_trainers_that_have_parked_meanwhile_says_nothing() -> None:
    story = a_live_worker(1).hears(a_halt(2)).after(0.1).reports_status(parked_at(2, 1))
    assert _sees(story).facts == []
    assert [t.attached.parking for t in story.state.trainers if t.attached is not None] == [0, 0]


def test_trainers_that_are_ended_are_not_looked_at() -> None:
    story = a_training_worker(1).hears(a_halt(2))
    assert any(isinstance(effect, StopTrainers) for effect in story.last)
    assert _looks(story.after(0.5)) == 0


def test_a_trainer_that_parked_before_the_halt_came_is_not_waited_for() -> None:
    story = a_live_worker(1).reports_status(parked_at(2, 1))
    assert story.hears(a_halt(2)).facts == ["parked"]


def test_a_parked_trainer_may_park_again_and_again() -> None:
    story = a_parked_worker(2).hears(a_halt(3))
    assert story.state.phase is WorkerPhase.STOPPING
    assert story.reports_status(parked_at(3, 1)).facts == ["parked"]


def test_a_parked_leaving_worker_that_is_released_goes_quickly() -> None:
    story = a_live_worker(1).hears(a_plan(2, ELSEWHERE, leaving_workers=(OWN,))).reports_status(parked_at(2, 1))
    assert story.hears(a_release(OWN)).last == [StopTrainers(Generation(1), 0.2)]
    story.happens(TrainersStopped(100.0, Generation(1)))
    assert story.last[-1] == Leave(0, "released: a test")


def test_where_nobody_stays_a_parked_worker_that_is_released_has_its_grace_to_save() -> None:
    story = a_live_worker(1).hears(a_halt(2)).reports_status(parked_at(2, 1))
    assert story.hears(a_release(OWN, is_last=True)).last == [StopTrainers(Generation(1), 5.0)]


def test_a_released_worker_that_trains_has_its_grace() -> None:
    assert a_live_worker(1).hears(a_release(OWN)).last == [StopTrainers(Generation(1), 5.0)]


def test_a_halt_during_a_planned_change_parks_above_both_worlds() -> None:
    story = a_live_worker(1).hears(a_plan(2, *WITH_US)).hears(a_halt(3))
    assert story.words == [(0, Park(Generation(3))), (1, Park(Generation(3)))]
    story.reports_status(in_world(2, 1), 0)
    assert story.state.phase is WorkerPhase.STOPPING
    story.reports_status(parked_at(3, 1))
    assert (story.facts[-1], story.state.generation) == ("parked", 3)


def test_a_trainer_that_never_attached_is_ended_by_a_halt_with_its_neighbours() -> None:
    story = a_training_worker(1).attaches(0).reports_status(in_world(1), 0).hears(a_halt(2))
    assert story.words == [(0, Park(Generation(2)))]
    assert StopTrainers(Generation(1), 5.0) in story.last
    assert story.happens(TrainersStopped(100.0, Generation(1))).facts == ["parked"]


def test_a_detached_trainer_that_does_not_come_back_is_ended_by_a_halt() -> None:
    story = a_live_worker(1).happens(TrainerDetached(100.0, Generation(1), Rank(0))).hears(a_halt(2))
    assert not any(isinstance(effect, StopTrainers) for effect in story.after(0.9).last)
    assert StopTrainers(Generation(1), 5.0) in story.after(0.2).last


def test_a_trainer_that_dies_instead_of_parking_is_told_but_not_counted_against_a_dead_world() -> None:
    story = a_live_worker(1).hears(a_halt(2)).reports_status(parked_at(2, 1), 0)
    story.exits(TrainerExit(rank=Rank(1), signal="SIGSEGV"), generation=1)
    assert story.facts == ["exited", "parked"]
    assert (story.sent.status.generation, story.sent.status.exits) == (2, ())


def test_trainers_after_whose_world_none_follows_park_and_are_ended_then() -> None:
    story = a_live_worker(1).hears(a_halt(2, stop_grace_s=40.0, ends=True))
    assert story.words == [(0, Park(Generation(2))), (1, Park(Generation(2)))]
    assert _stops(story) == []
    assert _stops(story.reports_status(parked_at(2, 1), 0)) == []
    story.reports_status(parked_at(2, 1, rank=1), 1)
    assert _stops(story) == [40.0] and story.facts == []
    assert story.after(39.0).facts == []
    story.happens(CheckpointWritten(story.now_s, WrittenCheckpoint(8, "/kept", 1.0)))
    story.happens(TrainersStopped(story.now_s, Generation(1)))
    assert story.facts == ["parked"]
    assert (story.state.phase, story.sent.status.trainers) == (WorkerPhase.PARKED, ())
    assert story.sent.status.checkpoint == WrittenCheckpoint(8, "/kept", 1.0)


def test_nobody_counts_on_trainers_that_were_told_to_end() -> None:
    story = a_live_worker(1).hears(a_halt(2, stop_grace_s=40.0, ends=True)).reports_status(parked_at(2, 1)).after(1.0)
    beats = [effect.status for effect in story.last if isinstance(effect, SendHeartbeat)]
    assert [(status.generation, status.trainers) for status in beats] == [(1, ())]


def test_one_that_does_not_park_is_ended_all_the_same() -> None:
    story = a_live_worker(1).hears(a_halt(2, stop_grace_s=40.0, ends=True)).reports_status(parked_at(2, 1), 0)
    assert _stops(story.after(4.9)) == []
    assert _stops(story.after(0.2)) == [40.0]


def test_asked_to_hurry_it_ends_trainers_again_with_less_grace() -> None:
    story = a_live_worker(1).hears(a_halt(2, stop_grace_s=40.0, ends=True)).reports_status(parked_at(2, 1))
    assert _stops(story.hears(a_halt(2, stop_grace_s=40.0, ends=True))) == []
    assert _stops(story.hears(a_halt(2, stop_grace_s=0.0, ends=True))) == [0.0]
    assert _stops(story.hears(a_halt(2, stop_grace_s=40.0, ends=True))) == []


def test_trainers_that_have_parked_are_ended_when_it_turns_out_that_no_world_follows() -> None:
    story = a_parked_worker(2)
    assert _stops(story.hears(a_halt(2, stop_grace_s=7.0, ends=True))) == [7.0]


def test_scripts_without_the_sdk_get_the_same_grace_at_once() -> None:
    assert _stops(a_training_worker(1).hears(a_halt(2, stop_grace_s=40.0, ends=True))) == [40.0]


def _stops(story: Story) -> list[float]:
    """The grace periods of the stops in the last step of the story."""
    return [effect.grace_s for effect in story.last if isinstance(effect, StopTrainers)]
