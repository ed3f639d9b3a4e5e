"""Warm trainers that wait to enter a running world."""

from agents.worker.commands import Enter, Park
from agents.worker.effects import ForkTrainers, StopTrainers
from agents.worker.events import HostLost, HostWarmed, TrainersStopped
from agents.worker.state import WorkerRules
from messages.ids import Generation, Rank
from messages.workers import TrainerExit, TrainerStatus, WorkerPhase
from tests.worker.builders import (
    ELSEWHERE,
    OTHER,
    WITH_US,
    a_halt,
    a_live_worker,
    a_plan,
    a_repair,
    a_warm_worker,
    an_assignment,
    an_invite,
    an_invited_worker,
    in_world,
)


def test_an_invited_worker_forks_trainers_behind_the_world_and_is_ready_when_they_attached() -> None:
    story = a_warm_worker().hears(an_assignment(1, ELSEWHERE)).hears(an_invite(1))
    assert story.last == [ForkTrainers(an_invite(1).world, invited=True)]
    assert [trainer.birth for trainer in story.state.trainers] == [(1, 3), (1, 4)]
    assert story.hears(an_invite(1)).last == []

    story.forks()
    assert (story.facts, story.state.phase) == ([], WorkerPhase.IDLE)
    story.attaches(0)
    assert story.facts == []
    story.attaches(1)
    assert story.facts == ["ready"]
    assert story.words == []
    assert len(story.sent.status.trainers) == 2


def test_invited_trainers_enter_a_planned_world() -> None:
    story = an_invited_worker()
    world = a_plan(2, *WITH_US)
    assert [word for _, word in story.hears(world).words] == [Enter(world, Rank(1)), Enter(world, Rank(2))]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.IDLE, 1)
    story.reports_status(in_world(2, 1, active=False), 0).reports_status(in_world(2, 2, active=False), 1)
    assert story.facts == ["switched"]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.READY, 2)


def test_invited_trainers_enter_a_repaired_world() -> None:
    story = an_invited_worker().hears(a_halt(2))
    assert story.facts == ["parked"]
    world = a_repair(2, *WITH_US)
    assert len(story.hears(world).words) == 2
    assert story.state.phase is WorkerPhase.STARTING
    assert story.reports_status(in_world(2, 1)).facts == ["switched"]


def test_a_halt_leaves_invited_trainers_that_still_warm_up_alone() -> None:
    story = a_warm_worker().hears(an_assignment(1, ELSEWHERE)).hears(an_invite(1)).forks().hears(a_halt(2))
    assert story.facts == ["parked"]
    assert not any(isinstance(effect, StopTrainers) for effect in story.last)
    assert story.attaches().facts == ["ready"]


def test_an_invited_trainer_on_its_way_into_a_world_has_to_park_like_all_others() -> None:
    story = an_invited_worker().hears(a_plan(2, *WITH_US)).hears(a_halt(3))
    assert story.words == [(0, Park(Generation(3))), (1, Park(Generation(3)))]
    assert story.facts == []
    assert story.reports_status(TrainerStatus(0, parked=Generation(3))).facts == ["parked"]


def test_a_plan_that_no_longer_counts_on_an_invited_trainer_parks_it() -> None:
    story = an_invited_worker().hears(a_plan(2, *WITH_US)).hears(a_plan(3, ELSEWHERE))
    assert story.words == [(0, Park(Generation(3))), (1, Park(Generation(3)))]
    story.reports_status(TrainerStatus(0, parked=Generation(3)))
    assert (story.state.phase, story.state.generation) == (WorkerPhase.IDLE, 3)


def test_a_worker_that_trains_or_is_not_named_does_not_obey_an_invitation() -> None:
    assert a_live_worker(1).hears(an_invite(1)).last == []
    assert a_warm_worker().hears(an_invite(1, OTHER)).last == []
    assert a_warm_worker().hears(an_assignment(4, ELSEWHERE), epoch=7).hears(an_invite(4), epoch=6).last == []


def test_an_invitation_that_comes_while_the_host_warms_is_obeyed_when_it_is_warm() -> None:
    story = a_warm_worker().happens(HostLost(100.0, "gone")).hears(an_invite(1))
    assert story.last == []
    story.after(1.0)
    assert ForkTrainers(an_invite(1).world, invited=True) in story.happens(HostWarmed(101.0)).last


def test_an_invited_trainer_that_exits_is_told_and_the_next_invitation_waits_longer_each_time() -> None:
    story = a_warm_worker(slots=1)
    waits = []
    for _ in range(4):
        asked_s = story.now_s
        story.hears(an_invite(1))
        while not story.state.trainers:
            story.after(0.5)
        waits.append(story.now_s - asked_s)
        story.forks().exits(TrainerExit(rank=Rank(3), code=1), generation=1)
        assert (story.facts, story.state.phase, story.state.outcomes.exits) == (["exited"], WorkerPhase.IDLE, ())
    assert waits == [0.0, 1.0, 2.0, 4.0]


def test_an_invitation_replaces_trainers_that_are_not_complete_any_more() -> None:
    story = an_invited_worker().exits(TrainerExit(rank=Rank(3), code=1), generation=1).after(1.0)
    assert story.hears(an_invite(1)).last == [StopTrainers(Generation(1), 5.0)]
    story.happens(TrainersStopped(story.now_s, Generation(1)))
    assert story.last == [ForkTrainers(an_invite(1).world, invited=True)]


def test_invited_trainers_that_never_attach_are_given_up() -> None:
    story = a_warm_worker(rules=WorkerRules(attach_s=60.0)).hears(an_invite(1)).forks().attaches(0).after(59.0)
    assert not any(isinstance(effect, StopTrainers) for effect in story.last)
    assert StopTrainers(Generation(1), 5.0) in story.after(1.5).last
    story.happens(TrainersStopped(story.now_s, Generation(1)))
    assert (story.state.trainers, story.state.phase) == ((), WorkerPhase.IDLE)
