"""Trainers that others wait for: where they are, whether they run, and the end of one that is stalled."""

from msgspec import structs

from agents.worker.commands import Locate as Asked
from agents.worker.effects import AbortTrainer, LookAtTrainers
from agents.worker.events import TrainersSeen
from messages.ids import Generation, Rank
from messages.workers import TrainerExit, TrainerStatus
from messages.worlds import EndStalled, Locate
from tests.worker.builders import (
    JOB,
    OTHER,
    OWN,
    Story,
    a_halt,
    a_live_worker,
    a_member,
    a_parked_worker,
    a_plan,
    in_world,
)

WHY = "it has not entered the all-reduce of step 7 for 60 s"


def asked(number: int) -> Locate:
    return Locate(JOB, Generation(1), number)


def stalled(*ranks: int, generation: int = 1) -> EndStalled:
    return EndStalled(JOB, Generation(generation), tuple(map(Rank, ranks)), WHY)


def sees(story: Story, *local_ranks: int) -> Story:
    running = frozenset(t.birth for t in story.state.trainers if t.local_rank in local_ranks)
    return story.happens(TrainersSeen(story.now_s, running))


def waits(rank: int, *, overdue: bool = True) -> TrainerStatus:
    return structs.replace(in_world(1, rank), waiting=7, overdue=overdue, step_s=0.1)


def test_a_trainer_that_has_waited_long_is_told_at_once_and_so_is_the_end_of_its_wait() -> None:
    story = a_live_worker(1).reports_status(waits(0), 0)
    assert story.facts == ["position"]
    assert [(t.waiting, t.overdue, t.step_s) for t in story.sent.status.trainers] == [(7, True, 0.1), (None, False, 0)]
    assert story.reports_status(in_world(1, 0, done=8), 0).facts == ["position"]
    assert story.reports_status(in_world(1, 0, done=9), 0).facts == []


def test_who_is_asked_asks_the_kernel_and_the_trainers_and_answers_for_those_that_run() -> None:
    story = a_live_worker(1).hears(asked(41))
    assert story.words == [(0, Asked()), (1, Asked())]
    assert any(isinstance(effect, LookAtTrainers) for effect in story.last)
    assert sees(story, 0).facts == ["position"]
    assert [trainer.located for trainer in story.sent.status.trainers] == [41, 0]


def test_an_answer_is_repeated_as_often_as_it_is_asked_for() -> None:
    story = sees(a_live_worker(1).hears(asked(41)), 0, 1)
    assert sees(story.hears(asked(41)), 0, 1).facts == ["position"]
    assert sees(story).facts == []


def test_a_trainer_that_the_kernel_does_not_show_answers_for_itself() -> None:
    story = sees(a_live_worker(1).hears(asked(41)))
    assert story.reports_status(in_world(1, 1), 1).facts == ["position"]
    assert [trainer.located for trainer in story.sent.status.trainers] == [0, 41]


def test_a_master_of_an_older_epoch_is_not_answered() -> None:
    story = a_live_worker(1).hears(a_halt(1), epoch=3).hears(asked(41), epoch=2)
    assert story.last == []


def test_a_pause_is_told_when_it_begins_and_when_it_ends() -> None:
    story = a_live_worker(1).reports_status(structs.replace(in_world(1, 0), paused="evaluating", paused_at=5.0), 0)
    assert story.facts == ["position"]
    assert (story.sent.status.trainers[0].paused, story.sent.status.trainers[0].paused_at) == ("evaluating", 5.0)
    assert story.reports_status(in_world(1, 0), 0).facts == ["position"]


def test_a_stalled_rank_is_aborted_and_its_exit_is_told_with_its_stack() -> None:
    story = a_live_worker(1).hears(stalled(1))
    assert [effect for effect in story.last if isinstance(effect, AbortTrainer)] == [
        AbortTrainer(Generation(1), Rank(1), WHY)
    ]
    story.exits(TrainerExit(Rank(1), signal="SIGKILL", stalled=WHY, error="in never_comes_back"))
    assert story.facts == ["exited"]
    assert [(exit_.rank, exit_.stalled) for exit_ in story.sent.status.exits] == [(1, WHY)]


def test_a_stalled_rank_is_aborted_by_the_place_it_was_forked_with() -> None:
    story = a_live_worker(1).hears(a_plan(2, a_member(OWN, 0, 2)))
    story.reports_status(in_world(2, 0), 0).reports_status(in_world(2, 1), 1)
    assert story.hears(stalled(1, generation=1)).last == []
    assert story.hears(stalled(2, generation=2)).last == []
    assert AbortTrainer(Generation(1), Rank(1), WHY) in story.hears(stalled(1, generation=2)).last


def test_a_trainer_that_never_comes_into_the_world_that_was_prepared_with_it_is_aborted_too() -> None:
    story = a_parked_worker().hears(a_plan(3, a_member(OTHER, 0), a_member(OWN, 1, 1)))
    assert story.state.planned
    born = story.state.trainers[0]
    assert AbortTrainer(born.generation, born.rank, WHY) in story.hears(stalled(1, generation=3)).last


def test_no_trainer_of_a_halted_world_is_aborted() -> None:
    story = a_live_worker(1).hears(a_halt(2))
    assert not any(isinstance(effect, AbortTrainer) for effect in story.hears(stalled(1)).last)


def test_a_stalled_trainer_that_ends_after_a_halt_is_still_a_failure() -> None:
    story = a_live_worker(1).hears(stalled(1)).hears(a_halt(2))
    story.exits(TrainerExit(Rank(1), signal="SIGKILL", stalled=WHY), generation=1)
    assert [fallen.exit.stalled for fallen in story.state.outcomes.fallen] == [WHY]
