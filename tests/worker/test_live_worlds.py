"""Trainers that live through changes of the world, as the worker-agent's core sees them."""

import pytest

from agents.worker.commands import Enter
from agents.worker.effects import ForkTrainers, StopTrainers
from agents.worker.events import HostLost, TrainersStopped
from messages.ids import Generation, Rank
from messages.workers import TrainerExit, WorkerPhase
from messages.worlds import Assignment
from tests.worker.builders import (
    ELSEWHERE,
    OWN,
    WITH_US,
    a_halt,
    a_live_worker,
    a_member,
    a_parked_worker,
    a_plan,
    a_repair,
    a_training_worker,
    a_warm_worker,
    an_assignment,
    an_invited_worker,
    in_world,
    parked_at,
)


def test_a_worker_has_switched_when_all_its_trainers_show_the_world() -> None:
    story = a_training_worker(1).attaches().reports_status(in_world(1, 0), 0)
    assert story.facts == []
    story.reports_status(in_world(1, 1, done=12), 1)
    assert story.facts == ["switched"]
    assert story.sent.step == 12
    assert [(status.local_rank, status.rank) for status in story.sent.status.trainers] == [(0, 0), (1, 1)]


def test_a_repaired_world_is_entered_with_new_ranks_and_is_ready_when_shown() -> None:
    world = a_repair(2, *WITH_US)
    story = a_parked_worker().hears(world)
    assert story.words == [(0, Enter(world, Rank(1))), (1, Enter(world, Rank(2)))]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.STARTING, 2)
    assert not any(isinstance(effect, ForkTrainers) for effect in story.last)

    story.reports_status(in_world(2, 1), 0)
    assert (story.facts, story.state.phase) == ([], WorkerPhase.STARTING)
    story.reports_status(in_world(2, 2), 1)
    assert (story.facts, story.state.phase) == (["switched"], WorkerPhase.READY)


def test_a_planned_world_is_told_while_the_present_one_trains() -> None:
    world = a_plan(2, *WITH_US)
    story = a_live_worker(1).hears(world)
    assert story.words == [(0, Enter(world, Rank(1))), (1, Enter(world, Rank(2)))]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.READY, 1)
    assert story.facts == []

    story.reports_status(in_world(2, 1), 0)
    assert (story.facts, story.state.generation) == ([], 1)
    story.reports_status(in_world(2, 2), 1)
    assert story.facts == ["switched"]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.READY, 2)


def test_a_leaving_worker_trains_until_it_has_parked_and_then_waits_warm() -> None:
    world = a_plan(2, ELSEWHERE, leaving_workers=(OWN,))
    story = a_live_worker(1).hears(world)
    assert story.words == [(0, Enter(world, Rank(0), leaves=True)), (1, Enter(world, Rank(1), leaves=True))]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.READY, 1)

    story.reports_status(parked_at(2, 1), 0)
    assert story.facts == []
    story.reports_status(parked_at(2, 1, rank=1), 1)
    assert story.facts == ["parked"]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.IDLE, 2)
    assert len(story.state.trainers) == 2

    again = a_plan(3, *WITH_US)
    assert [word for _, word in story.hears(again).words] == [Enter(again, Rank(1)), Enter(again, Rank(2))]
    story.reports_status(in_world(3, 1), 0)
    assert story.reports_status(in_world(3, 2), 1).facts == ["switched"]


def test_a_leaving_worker_that_dies_before_the_switch_is_told_and_stays_in_the_world_it_broke() -> None:
    story = a_live_worker(1).hears(a_plan(2, ELSEWHERE, leaving_workers=(OWN,)))
    story.exits(*(TrainerExit(rank=Rank(rank), signal="SIGKILL") for rank in range(2)), generation=1)
    assert story.facts == ["exited", "exited"]
    assert (story.sent.status.generation, len(story.sent.status.exits)) == (1, 2)
    assert story.hears(a_halt(3)).facts == ["parked"]


def test_survivors_that_the_repaired_world_leaves_out_wait_warm() -> None:
    story = a_parked_worker().hears(a_repair(2, ELSEWHERE))
    assert story.words == []
    assert (story.state.phase, story.state.generation) == (WorkerPhase.IDLE, 2)
    world = a_plan(3, *WITH_US)
    assert len(story.hears(world).words) == 2


def test_a_newer_plan_takes_the_place_of_one_that_was_not_carried_out() -> None:
    newer = a_plan(3, *WITH_US)
    story = a_live_worker(1).hears(a_plan(2, *WITH_US)).hears(newer)
    assert [word for _, word in story.words] == [Enter(newer, Rank(1)), Enter(newer, Rank(2))]
    assert story.state.generation == 1


def test_a_world_of_new_processes_ends_attached_trainers_first() -> None:
    world = an_assignment(2, a_member(OWN, 0, 2))
    story = a_parked_worker().hears(world)
    assert story.last == [StopTrainers(Generation(1), 5.0)]
    story.happens(TrainersStopped(100.0, Generation(1)))
    assert story.last == [ForkTrainers(world)]


def test_what_broke_in_an_older_world_is_no_news() -> None:
    story = a_parked_worker().hears(a_repair(2, *WITH_US)).reports_status(in_world(2, 1, broken=1))
    assert story.facts == ["switched"]


def test_a_joining_worker_that_becomes_active_is_told() -> None:
    story = a_live_worker(1)
    story.reports_status(in_world(1, active=False), 0)
    assert story.reports_status(in_world(1, active=True), 0).facts == ["ready"]
    assert story.reports_status(in_world(1, done=9), 0).facts == []


def test_an_exit_is_told_with_the_rank_of_the_present_world() -> None:
    story = (
        a_parked_worker()
        .hears(a_repair(2, *WITH_US))
        .reports_status(in_world(2, 1), 0)
        .reports_status(in_world(2, 2), 1)
    )
    story.exits(TrainerExit(rank=Rank(1), signal="SIGKILL"), generation=1)
    assert story.facts == ["exited"]
    assert story.sent.exit == TrainerExit(rank=Rank(2), signal="SIGKILL")
    assert [ended.rank for ended in story.sent.status.exits] == [2]
    assert [status.rank for status in story.sent.status.trainers] == [1]


def test_all_exits_of_a_live_world_end_it() -> None:
    story = (
        a_parked_worker()
        .hears(a_repair(2, *WITH_US))
        .reports_status(in_world(2, 1), 0)
        .reports_status(in_world(2, 2), 1)
    )
    story.exits(*(TrainerExit(rank=Rank(rank), code=0) for rank in range(2)), generation=1)
    assert story.state.phase is WorkerPhase.ENDED


def test_a_trainer_that_dies_parked_is_told_and_its_rank_is_missing_in_the_world_that_counted_on_it() -> None:
    story = a_parked_worker().exits(TrainerExit(rank=Rank(0), signal="SIGKILL"), generation=1)
    assert story.facts == ["exited"]
    assert story.sent.status.exits == ()
    story.hears(a_repair(2, *WITH_US))
    assert story.facts == ["exited"]
    assert [ended.rank for ended in story.state.outcomes.exits] == [1]
    assert [word for _, word in story.words] == [Enter(a_repair(2, *WITH_US), Rank(2))]


def test_a_lost_host_takes_live_trainers_with_it() -> None:
    story = a_parked_worker().hears(a_repair(2, *WITH_US)).reports_status(in_world(2, 1))
    story.happens(HostLost(100.0, "ended by SIGSEGV"))
    assert story.facts == ["exited", "exited"]
    assert [ended.rank for ended in story.state.outcomes.exits] == [1, 2]


def test_repeated_commands_say_nothing_new() -> None:
    story = a_live_worker(1).hears(a_plan(2, *WITH_US))
    for message in (a_plan(2, *WITH_US), a_plan(1, *WITH_US), a_halt(2), a_halt(1)):
        assert story.hears(message).last == []


@pytest.mark.parametrize("world", [a_plan(2, *WITH_US), a_repair(2, *WITH_US), a_plan(2, ELSEWHERE)])
def test_a_worker_without_trainers_survives_any_live_world(world: Assignment) -> None:
    story = a_warm_worker().hears(world).after(3.0)
    assert not any(isinstance(effect, ForkTrainers) for effect in story.effects)
    assert story.why


def test_what_it_waits_for_is_said_in_words() -> None:
    story = a_live_worker(1)
    whys = [story.why, story.hears(a_plan(2, *WITH_US)).why, story.hears(a_halt(3)).why]
    whys += [story.reports_status(parked_at(3, 1)).why, story.hears(a_repair(3, *WITH_US)).why, an_invited_worker().why]
    assert len(set(whys)) == len(whys)
