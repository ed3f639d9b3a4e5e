"""Stories of trainers that live through changes of the world, as the worker-agent's core sees them."""

import pytest

from agents.worker.effects import (
    FlushProgress,
    ForkTrainers,
    Leave,
    LookAtTrainers,
    SendHeartbeat,
    StopTrainers,
    TellFact,
    TellTrainer,
)
from agents.worker.events import (
    BusLost,
    HostLost,
    HostWarmed,
    NoticeCame,
    StepCompleted,
    TrainerAttached,
    TrainerDetached,
    TrainerForked,
    TrainerSaid,
    TrainersSeen,
    TrainersStopped,
)
from agents.worker.state import WorkerRules
from agents.worker.words import Enter, Lease, Park
from messages.ids import Generation, Rank
from messages.workers import TrainerExit, TrainerStatus, WorkerPhase
from messages.worlds import Assignment
from tests.worker.builders import (
    OTHER,
    OWN,
    Story,
    a_halt,
    a_hot_worker,
    a_member,
    a_plan,
    a_release,
    a_repair,
    a_training_worker,
    a_warm_worker,
    an_assignment,
    an_invite,
    in_world,
    parked_at,
)

ELSEWHERE = a_member(OTHER, 0, 3)
WITH_US = (a_member(OTHER, 0, 1), a_member(OWN, 1, 2, group_rank=1))


def _parked(generation: int = 2) -> Story:
    return a_hot_worker(1).hears(a_halt(generation)).says(parked_at(generation, 1))


def _invited() -> Story:
    """Two trainers that wait, warm, to be taken into the world of another worker."""
    return a_warm_worker().hears(an_assignment(1, ELSEWHERE)).hears(an_invite(1)).forks().attaches()


def test_a_trainer_that_attaches_is_told_the_world_it_was_forked_for() -> None:
    story = a_training_worker(1).attaches(1)
    world = an_assignment(1, a_member(OWN, 0, 2))
    assert story.words == [(1, Enter(world, Rank(1)))]
    assert story.attaches(0).words == [(0, Enter(world, Rank(0)))]


def test_a_trainer_that_does_not_show_what_it_was_told_is_told_again_after_a_second() -> None:
    story = a_training_worker(1).attaches(0)
    assert story.after(0.99).words == []
    assert [local_rank for local_rank, _ in story.after(0.02).words] == [0]
    story.says(in_world(1), 0)
    assert story.after(5.0).words == []


def test_a_worker_has_switched_when_all_its_trainers_show_the_world() -> None:
    story = a_training_worker(1).attaches().says(in_world(1, 0), 0)
    assert story.facts == []
    story.says(in_world(1, 1, done=12), 1)
    assert story.facts == ["switched"]
    assert story.told.step == 12
    assert [(status.local_rank, status.rank) for status in story.told.status.trainers] == [(0, 0), (1, 1)]


def test_steps_of_attached_trainers_are_counted_and_not_told_a_second_time() -> None:
    story = a_hot_worker(1).happens(StepCompleted(100.0, Generation(1), Rank(0), 9))
    assert story.facts == []
    assert story.state.step == 9


def test_a_halt_reaches_attached_trainers_at_once_and_ends_none() -> None:
    story = a_hot_worker(1).hears(a_halt(2))
    assert story.words == [(0, Park(Generation(2))), (1, Park(Generation(2)))]
    assert not any(isinstance(effect, StopTrainers) for effect in story.last)
    assert (story.state.phase, story.state.generation) == (WorkerPhase.STOPPING, 1)


def test_a_worker_parks_when_its_last_trainer_has_in_one_message() -> None:
    story = a_hot_worker(1).hears(a_halt(2)).says(parked_at(2, 1), 0)
    assert story.facts == []
    story.says(parked_at(2, 1, rank=1), 1)
    assert story.facts == ["parked"]
    assert [status.parked for status in story.told.status.trainers] == [2, 2]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.PARKED, 2)
    assert [type(effect) for effect in story.last] == [TellFact, FlushProgress]


def _looks(story: Story) -> int:
    return sum(isinstance(effect, LookAtTrainers) for effect in story.last)


def _sees(story: Story, *local_ranks: int) -> Story:
    """That these trainers run, or all."""
    running = frozenset(t.birth for t in story.state.trainers if not local_ranks or t.local_rank in local_ranks)
    return story.happens(TrainersSeen(story.now_s, running))


def test_trainers_that_park_at_once_are_not_looked_at() -> None:
    story = a_hot_worker(1).hears(a_halt(2)).after(0.05).says(parked_at(2, 1))
    assert story.facts == ["parked"]
    assert _looks(story.after(0.5)) == 0


def test_trainers_that_are_slow_to_park_are_looked_at_until_they_have() -> None:
    story = a_hot_worker(1).hears(a_halt(2))
    assert _looks(story.after(0.45)) == 4
    story.says(parked_at(2, 1))
    assert _looks(story.after(0.5)) == 0


def test_a_halt_that_is_said_again_has_the_trainers_looked_at_at_once() -> None:
    story = a_hot_worker(1).hears(a_halt(2))
    assert _looks(story) == 0
    assert _looks(story.hears(a_halt(2))) == 1
    assert _looks(story.says(parked_at(2, 1)).hears(a_halt(2))) == 0


def test_trainers_that_run_are_told_to_be_parking() -> None:
    story = a_hot_worker(1).hears(a_halt(2)).after(0.1).says(parked_at(2, 1), 0)
    assert _sees(story).facts == ["parking"]
    assert [(t.parked, t.parking) for t in story.told.status.trainers] == [(2, 0), (0, 2)]
    assert _sees(story.after(0.1)).facts == ["parking"]
    story.says(in_world(1, 1, broken=1), 1)
    assert [t.parking for t in story.told.status.trainers] == [0, 2]


def test_nothing_is_said_for_trainers_that_are_stopped() -> None:
    story = a_hot_worker(1).hears(a_halt(2)).after(0.1)
    assert _sees(story, 0).facts == []
    _sees(story)
    assert _sees(story.after(0.1), 0).facts == []
    beats = [effect for effect in story.after(1.0).last if isinstance(effect, SendHeartbeat)]
    assert [t.parking for t in beats[0].status.trainers] == [2, 0]


def test_a_look_at_trainers_that_have_parked_meanwhile_says_nothing() -> None:
    story = a_hot_worker(1).hears(a_halt(2)).after(0.1).says(parked_at(2, 1))
    assert _sees(story).facts == []
    assert [t.attached.parking for t in story.state.trainers if t.attached is not None] == [0, 0]


def test_trainers_that_are_ended_are_not_looked_at() -> None:
    story = a_training_worker(1).hears(a_halt(2))
    assert any(isinstance(effect, StopTrainers) for effect in story.last)
    assert _looks(story.after(0.5)) == 0


def test_a_trainer_that_parked_before_the_halt_came_is_not_waited_for() -> None:
    story = a_hot_worker(1).says(parked_at(2, 1))
    assert story.hears(a_halt(2)).facts == ["parked"]


def test_a_parked_trainer_may_park_again_and_again() -> None:
    story = _parked(2).hears(a_halt(3))
    assert story.state.phase is WorkerPhase.STOPPING
    assert story.says(parked_at(3, 1)).facts == ["parked"]


def test_a_repaired_world_is_entered_with_new_ranks_and_is_ready_when_shown() -> None:
    world = a_repair(2, *WITH_US)
    story = _parked().hears(world)
    assert story.words == [(0, Enter(world, Rank(1))), (1, Enter(world, Rank(2)))]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.STARTING, 2)
    assert not any(isinstance(effect, ForkTrainers) for effect in story.last)

    story.says(in_world(2, 1), 0)
    assert (story.facts, story.state.phase) == ([], WorkerPhase.STARTING)
    story.says(in_world(2, 2), 1)
    assert (story.facts, story.state.phase) == (["switched"], WorkerPhase.READY)


def test_a_planned_world_is_told_while_the_present_one_trains() -> None:
    world = a_plan(2, *WITH_US)
    story = a_hot_worker(1).hears(world)
    assert story.words == [(0, Enter(world, Rank(1))), (1, Enter(world, Rank(2)))]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.READY, 1)
    assert story.facts == []

    story.says(in_world(2, 1), 0)
    assert (story.facts, story.state.generation) == ([], 1)
    story.says(in_world(2, 2), 1)
    assert story.facts == ["switched"]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.READY, 2)


def test_a_leaver_trains_until_it_has_parked_and_then_waits_warm() -> None:
    world = a_plan(2, ELSEWHERE, leavers=(OWN,))
    story = a_hot_worker(1).hears(world)
    assert story.words == [(0, Enter(world, Rank(0), leaves=True)), (1, Enter(world, Rank(1), leaves=True))]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.READY, 1)

    story.says(parked_at(2, 1), 0)
    assert story.facts == []
    story.says(parked_at(2, 1, rank=1), 1)
    assert story.facts == ["parked"]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.IDLE, 2)
    assert len(story.state.trainers) == 2

    again = a_plan(3, *WITH_US)
    assert [word for _, word in story.hears(again).words] == [Enter(again, Rank(1)), Enter(again, Rank(2))]
    story.says(in_world(3, 1), 0)
    assert story.says(in_world(3, 2), 1).facts == ["switched"]


def test_a_leaver_that_dies_before_the_switch_is_told_and_stays_in_the_world_it_broke() -> None:
    story = a_hot_worker(1).hears(a_plan(2, ELSEWHERE, leavers=(OWN,)))
    story.exits(*(TrainerExit(rank=Rank(rank), signal="SIGKILL") for rank in range(2)), generation=1)
    assert story.facts == ["exited", "exited"]
    assert (story.told.status.generation, len(story.told.status.exits)) == (1, 2)
    assert story.hears(a_halt(3)).facts == ["parked"]


def test_a_parked_leaver_that_is_released_goes_quickly() -> None:
    story = a_hot_worker(1).hears(a_plan(2, ELSEWHERE, leavers=(OWN,))).says(parked_at(2, 1))
    assert story.hears(a_release(OWN)).last == [StopTrainers(Generation(1), 0.2)]
    story.happens(TrainersStopped(100.0, Generation(1)))
    assert story.last[-1] == Leave(0, "released: a test")


def test_where_nobody_stays_a_parked_worker_that_is_released_has_its_grace_to_save() -> None:
    story = a_hot_worker(1).hears(a_halt(2)).says(parked_at(2, 1))
    assert story.hears(a_release(OWN, is_last=True)).last == [StopTrainers(Generation(1), 5.0)]


def test_a_released_worker_that_trains_has_its_grace() -> None:
    assert a_hot_worker(1).hears(a_release(OWN)).last == [StopTrainers(Generation(1), 5.0)]


def test_survivors_that_the_repaired_world_leaves_out_wait_warm() -> None:
    story = _parked().hears(a_repair(2, ELSEWHERE))
    assert story.words == []
    assert (story.state.phase, story.state.generation) == (WorkerPhase.IDLE, 2)
    world = a_plan(3, *WITH_US)
    assert len(story.hears(world).words) == 2


def test_a_halt_during_a_planned_change_parks_above_both_worlds() -> None:
    story = a_hot_worker(1).hears(a_plan(2, *WITH_US)).hears(a_halt(3))
    assert story.words == [(0, Park(Generation(3))), (1, Park(Generation(3)))]
    story.says(in_world(2, 1), 0)
    assert story.state.phase is WorkerPhase.STOPPING
    story.says(parked_at(3, 1))
    assert (story.facts[-1], story.state.generation) == ("parked", 3)


def test_a_newer_plan_takes_the_place_of_one_that_was_not_carried_out() -> None:
    newer = a_plan(3, *WITH_US)
    story = a_hot_worker(1).hears(a_plan(2, *WITH_US)).hears(newer)
    assert [word for _, word in story.words] == [Enter(newer, Rank(1)), Enter(newer, Rank(2))]
    assert story.state.generation == 1


def test_a_world_of_new_processes_ends_attached_trainers_first() -> None:
    world = an_assignment(2, a_member(OWN, 0, 2))
    story = _parked().hears(world)
    assert story.last == [StopTrainers(Generation(1), 5.0)]
    story.happens(TrainersStopped(100.0, Generation(1)))
    assert story.last == [ForkTrainers(world)]


def test_a_trainer_that_never_attached_is_ended_by_a_halt_with_its_neighbours() -> None:
    story = a_training_worker(1).attaches(0).says(in_world(1), 0).hears(a_halt(2))
    assert story.words == [(0, Park(Generation(2)))]
    assert StopTrainers(Generation(1), 5.0) in story.last
    assert story.happens(TrainersStopped(100.0, Generation(1))).facts == ["parked"]


def test_a_connection_that_breaks_says_nothing_and_only_forgets_the_status() -> None:
    story = a_hot_worker(1).happens(TrainerDetached(100.0, Generation(1), Rank(1)))
    assert story.last == []
    assert story.state.phase is WorkerPhase.READY
    status = story.exits(TrainerExit(rank=Rank(0), signal="SIGKILL")).told.status
    assert status.trainers == ()
    assert [ended.rank for ended in status.exits] == [0]


def test_a_trainer_that_attaches_again_is_told_again_what_it_does_not_show() -> None:
    story = a_hot_worker(1).hears(a_halt(2))
    story.happens(TrainerDetached(100.0, Generation(1), Rank(0)), TrainerAttached(100.0, Generation(1), Rank(0)))
    assert (0, Park(Generation(2))) in story.words


def test_a_trainer_that_attaches_over_its_own_connection_is_told_at_once() -> None:
    story = a_training_worker(1).attaches(0)
    assert [local_rank for local_rank, _ in story.attaches(0).words] == [0]


def test_a_detached_trainer_that_does_not_come_back_is_ended_by_a_halt() -> None:
    story = a_hot_worker(1).happens(TrainerDetached(100.0, Generation(1), Rank(0))).hears(a_halt(2))
    assert not any(isinstance(effect, StopTrainers) for effect in story.after(0.9).last)
    assert StopTrainers(Generation(1), 5.0) in story.after(0.2).last


def test_a_broken_collective_is_told_at_once_and_once() -> None:
    story = a_hot_worker(1).says(in_world(1, broken=1), 0)
    assert story.facts == ["peer_lost"]
    assert story.told.exit is None
    assert story.told.status.trainers[0].broken == 1
    assert story.says(in_world(1, done=8, broken=1), 0).facts == []
    assert story.says(in_world(1, 1, broken=1), 1).facts == ["peer_lost"]


def test_what_broke_in_an_older_world_is_no_news() -> None:
    story = _parked().hears(a_repair(2, *WITH_US)).says(in_world(2, 1, broken=1))
    assert story.facts == ["switched"]


def test_a_joiner_that_becomes_active_is_told() -> None:
    story = a_hot_worker(1)
    story.says(in_world(1, active=False), 0)
    assert story.says(in_world(1, active=True), 0).facts == ["ready"]
    assert story.says(in_world(1, done=9), 0).facts == []


def test_an_exit_is_told_with_the_rank_of_the_present_world() -> None:
    story = _parked().hears(a_repair(2, *WITH_US)).says(in_world(2, 1), 0).says(in_world(2, 2), 1)
    story.exits(TrainerExit(rank=Rank(1), signal="SIGKILL"), generation=1)
    assert story.facts == ["exited"]
    assert story.told.exit == TrainerExit(rank=Rank(2), signal="SIGKILL")
    assert [ended.rank for ended in story.told.status.exits] == [2]
    assert [status.rank for status in story.told.status.trainers] == [1]


def test_all_exits_of_a_hot_world_end_it() -> None:
    story = _parked().hears(a_repair(2, *WITH_US)).says(in_world(2, 1), 0).says(in_world(2, 2), 1)
    story.exits(*(TrainerExit(rank=Rank(rank), code=0) for rank in range(2)), generation=1)
    assert story.state.phase is WorkerPhase.ENDED


def test_a_trainer_that_dies_parked_is_told_and_its_rank_is_missing_in_the_world_that_counted_on_it() -> None:
    story = _parked().exits(TrainerExit(rank=Rank(0), signal="SIGKILL"), generation=1)
    assert story.facts == ["exited"]
    assert story.told.status.exits == ()
    story.hears(a_repair(2, *WITH_US))
    assert story.facts == ["exited"]
    assert [ended.rank for ended in story.state.exits] == [1]
    assert [word for _, word in story.words] == [Enter(a_repair(2, *WITH_US), Rank(2))]


def test_a_trainer_that_dies_instead_of_parking_is_told_but_not_counted_against_a_dead_world() -> None:
    story = a_hot_worker(1).hears(a_halt(2)).says(parked_at(2, 1), 0)
    story.exits(TrainerExit(rank=Rank(1), signal="SIGSEGV"), generation=1)
    assert story.facts == ["exited", "parked"]
    assert (story.told.status.generation, story.told.status.exits) == (2, ())


def test_a_lost_host_takes_hot_trainers_with_it() -> None:
    story = _parked().hears(a_repair(2, *WITH_US)).says(in_world(2, 1))
    story.happens(HostLost(100.0, "ended by SIGSEGV"))
    assert story.facts == ["exited", "exited"]
    assert [ended.rank for ended in story.state.exits] == [1, 2]


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
    assert len(story.told.status.trainers) == 2


def test_invited_trainers_enter_a_planned_world() -> None:
    story = _invited()
    world = a_plan(2, *WITH_US)
    assert [word for _, word in story.hears(world).words] == [Enter(world, Rank(1)), Enter(world, Rank(2))]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.IDLE, 1)
    story.says(in_world(2, 1, active=False), 0).says(in_world(2, 2, active=False), 1)
    assert story.facts == ["switched"]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.READY, 2)


def test_invited_trainers_enter_a_repaired_world() -> None:
    story = _invited().hears(a_halt(2))
    assert story.facts == ["parked"]
    world = a_repair(2, *WITH_US)
    assert len(story.hears(world).words) == 2
    assert story.state.phase is WorkerPhase.STARTING
    assert story.says(in_world(2, 1)).facts == ["switched"]


def test_a_halt_leaves_invited_trainers_that_still_warm_up_alone() -> None:
    story = a_warm_worker().hears(an_assignment(1, ELSEWHERE)).hears(an_invite(1)).forks().hears(a_halt(2))
    assert story.facts == ["parked"]
    assert not any(isinstance(effect, StopTrainers) for effect in story.last)
    assert story.attaches().facts == ["ready"]


def test_an_invited_trainer_on_its_way_into_a_world_has_to_park_like_all_others() -> None:
    story = _invited().hears(a_plan(2, *WITH_US)).hears(a_halt(3))
    assert story.words == [(0, Park(Generation(3))), (1, Park(Generation(3)))]
    assert story.facts == []
    assert story.says(TrainerStatus(0, parked=Generation(3))).facts == ["parked"]


def test_a_plan_that_no_longer_counts_on_an_invited_trainer_parks_it() -> None:
    story = _invited().hears(a_plan(2, *WITH_US)).hears(a_plan(3, ELSEWHERE))
    assert story.words == [(0, Park(Generation(3))), (1, Park(Generation(3)))]
    story.says(TrainerStatus(0, parked=Generation(3)))
    assert (story.state.phase, story.state.generation) == (WorkerPhase.IDLE, 3)


def test_a_worker_that_trains_or_is_not_named_does_not_obey_an_invitation() -> None:
    assert a_hot_worker(1).hears(an_invite(1)).last == []
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
        assert (story.facts, story.state.phase, story.state.exits) == (["exited"], WorkerPhase.IDLE, ())
    assert waits == [0.0, 1.0, 2.0, 4.0]


def test_an_invitation_replaces_trainers_that_are_not_complete_any_more() -> None:
    story = _invited().exits(TrainerExit(rank=Rank(3), code=1), generation=1).after(1.0)
    assert story.hears(an_invite(1)).last == [StopTrainers(Generation(1), 5.0)]
    story.happens(TrainersStopped(story.now_s, Generation(1)))
    assert story.last == [ForkTrainers(an_invite(1).world, invited=True)]


def test_invited_trainers_that_never_attach_are_given_up() -> None:
    story = a_warm_worker(rules=WorkerRules(attach_s=60.0)).hears(an_invite(1)).forks().attaches(0).after(59.0)
    assert not any(isinstance(effect, StopTrainers) for effect in story.last)
    assert StopTrainers(Generation(1), 5.0) in story.after(1.5).last
    story.happens(TrainersStopped(story.now_s, Generation(1)))
    assert (story.state.trainers, story.state.phase) == ((), WorkerPhase.IDLE)


def test_trainers_hear_with_every_heartbeat_that_the_bus_is_there_and_nothing_while_it_is_not() -> None:
    story = a_hot_worker(1).after(3.05)
    leases = [effect for effect in story.last if isinstance(effect, TellTrainer)]
    assert leases == [TellTrainer(Generation(1), Rank(rank), Lease(2.0)) for _ in range(3) for rank in range(2)]
    assert story.happens(BusLost(story.now_s)).after(3.0).last == []


def test_a_trainer_that_attaches_hears_at_once_whether_the_bus_is_there() -> None:
    greeting = TellTrainer(Generation(1), Rank(0), Lease(2.0))
    assert greeting in a_training_worker(1).attaches(0).last
    assert greeting not in a_training_worker(1).happens(BusLost(100.0)).attaches(0).last


def test_a_hot_worker_under_notice_goes_at_the_latest_at_its_deadline() -> None:
    story = a_hot_worker(1).happens(NoticeCame(100.0, 15.0, "signal")).after(14.1)
    assert StopTrainers(Generation(1), 0.5) in story.last


def test_repeated_commands_say_nothing_new() -> None:
    story = a_hot_worker(1).hears(a_plan(2, *WITH_US))
    for message in (a_plan(2, *WITH_US), a_plan(1, *WITH_US), a_halt(2), a_halt(1)):
        assert story.hears(message).last == []


@pytest.mark.parametrize("world", [a_plan(2, *WITH_US), a_repair(2, *WITH_US), a_plan(2, ELSEWHERE)])
def test_a_worker_without_trainers_survives_any_hot_world(world: Assignment) -> None:
    story = a_warm_worker().hears(world).after(3.0)
    assert not any(isinstance(effect, ForkTrainers) for effect in story.effects)
    assert story.why


def test_strangers_teach_nothing() -> None:
    story = a_hot_worker(1)
    known = story.state
    story.happens(TrainerAttached(100.0, Generation(9), Rank(0)), TrainerDetached(100.0, Generation(9), Rank(0)))
    story.happens(TrainerSaid(100.0, Generation(9), Rank(0), in_world(9)))
    story.happens(TrainerForked(100.0, Generation(1), Rank(0), 5))
    assert story.state == known


def test_what_it_waits_for_is_said_in_words() -> None:
    story = a_hot_worker(1)
    whys = [story.why, story.hears(a_plan(2, *WITH_US)).why, story.hears(a_halt(3)).why]
    whys += [story.says(parked_at(3, 1)).why, story.hears(a_repair(3, *WITH_US)).why, _invited().why]
    assert len(set(whys)) == len(whys)
