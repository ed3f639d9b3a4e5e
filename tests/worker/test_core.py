"""Stories of the worker-agent's core: its events, its effects, its facts."""

from msgspec import structs

from agents.worker.effects import (
    FlushProgress,
    ForkTrainers,
    Leave,
    ReadStoredWorld,
    SendHeartbeat,
    StartHost,
    StopTrainers,
    TellFact,
    TellNotice,
)
from agents.worker.events import (
    BusBack,
    BusLost,
    HostLost,
    HostWarmed,
    NoticeCame,
    StepCompleted,
    StopAsked,
    TrainerForked,
    TrainerForkFailed,
    TrainersStopped,
)
from agents.worker.learn import host_lost
from agents.worker.state import WorkerRules
from messages.ids import Generation, JobName, Rank
from messages.workers import TrainerExit, WorkerPhase
from tests.worker.builders import (
    OTHER,
    OWN,
    Story,
    a_halt,
    a_member,
    a_new_worker,
    a_release,
    a_training_worker,
    a_warm_worker,
    an_assignment,
)

CRASHED = "ended by SIGSEGV"
NO_GPUS = "torch sees 0 GPUs"
CLEAN = [TrainerExit(rank=Rank(rank), code=0) for rank in range(2)]
FAILED = TrainerExit(rank=Rank(0), code=1, tail=("ValueError: no",))


def _stopped(story: Story, generation: int) -> Story:
    return story.happens(TrainersStopped(story.now_s, Generation(generation)))


def _heartbeats(story: Story) -> list[SendHeartbeat]:
    return [effect for effect in story.last if isinstance(effect, SendHeartbeat)]


def test_a_new_worker_starts_its_host_and_heartbeats_at_once() -> None:
    story = a_new_worker()
    assert StartHost() in story.last
    assert _heartbeats(story)[0].status.phase is WorkerPhase.WARMING


def test_a_worker_joins_when_its_host_is_warm() -> None:
    story = a_warm_worker()
    assert story.facts == ["joined"]
    assert story.state.phase is WorkerPhase.IDLE


def test_an_assigned_worker_forks_its_ranks_and_is_ready_when_all_were_forked() -> None:
    story = a_warm_worker().hears(an_assignment(1))
    assert story.last == [ForkTrainers(an_assignment(1))]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.STARTING, 1)

    story.happens(TrainerForked(100.0, Generation(1), Rank(0), 1000))
    assert story.facts == []
    story.happens(TrainerForked(100.0, Generation(1), Rank(1), 1001))
    assert story.facts == ["ready"]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.READY, 1)


def test_an_assignment_that_comes_while_the_host_warms_is_carried_out_when_it_is_warm() -> None:
    story = a_new_worker().hears(an_assignment(1))
    assert story.last == []
    assert story.state.phase is WorkerPhase.STARTING
    story.happens(HostWarmed(100.0))
    assert story.last == [ForkTrainers(an_assignment(1))]


def test_a_worker_without_a_place_in_the_world_is_a_spare_that_obeys_the_fence() -> None:
    story = a_warm_worker().hears(an_assignment(3, a_member(OTHER, 0)))
    assert story.last == []
    assert (story.state.phase, story.state.generation) == (WorkerPhase.IDLE, 3)
    assert story.hears(an_assignment(2)).state.generation == 3


def test_a_late_halt_ends_no_trainer_of_the_world_that_answered_it() -> None:
    story = a_training_worker(2).hears(a_halt(2, stop_grace_s=30.0, ends=True))
    assert story.last == []
    assert story.state.phase is WorkerPhase.READY


def test_a_halt_stops_the_trainers_and_only_then_parks() -> None:
    story = a_training_worker(1).hears(a_halt(2, stop_grace_s=3.0))
    assert story.last == [StopTrainers(Generation(1), 3.0)]
    assert (story.state.phase, story.state.generation) == (WorkerPhase.STOPPING, 1)

    _stopped(story, 1)
    assert story.facts == ["parked"]
    assert story.last[0] == FlushProgress()
    assert (story.state.phase, story.state.generation) == (WorkerPhase.PARKED, 2)


def test_a_halt_while_forking_stops_also_what_was_not_yet_forked() -> None:
    story = a_warm_worker().hears(an_assignment(1)).hears(a_halt(2))
    assert story.last == [StopTrainers(Generation(1), 5.0)]
    story.forks()
    assert story.facts == []
    assert story.state.phase is WorkerPhase.STOPPING
    assert _stopped(story, 1).facts == ["parked"]


def test_a_worker_without_trainers_parks_at_once() -> None:
    story = a_warm_worker().hears(a_halt(1))
    assert story.facts == ["parked"]
    assert story.hears(a_halt(2)).facts == ["parked"]
    assert story.state.generation == 2


def test_the_assignment_that_answers_a_halt_is_carried_out() -> None:
    story = _stopped(a_training_worker(1).hears(a_halt(2)), 1).hears(an_assignment(2))
    assert story.last == [ForkTrainers(an_assignment(2))]


def test_an_assignment_that_comes_while_older_trainers_stop_is_remembered() -> None:
    story = a_training_worker(1).hears(a_halt(2)).hears(an_assignment(2))
    assert story.last == []
    _stopped(story, 1)
    assert story.last == [ForkTrainers(an_assignment(2))]


def test_an_assignment_without_a_halt_before_it_ends_the_older_trainers_first() -> None:
    story = a_training_worker(1).hears(an_assignment(4, stop_grace_s=2.0))
    assert story.last == [StopTrainers(Generation(1), 2.0)]
    assert _stopped(story, 1).last == [ForkTrainers(an_assignment(4, stop_grace_s=2.0))]


def test_a_newer_halt_drops_a_remembered_assignment() -> None:
    story = a_training_worker(1).hears(an_assignment(2)).hears(a_halt(3))
    _stopped(story, 1)
    assert story.facts == ["parked"]
    assert story.state.generation == 3


def test_trainers_that_all_exit_while_being_stopped_park_without_being_listed() -> None:
    story = a_training_worker(1).hears(a_halt(2)).exits(*CLEAN, generation=1)
    assert story.facts == ["parked"]
    assert story.state.outcomes.exits == ()
    assert _stopped(story, 1).last == []


def test_a_stop_that_is_not_confirmed_is_asked_for_again() -> None:
    rules = WorkerRules(stop_repeat_s=10.0)
    story = a_training_worker(1, rules=rules).hears(a_halt(2, stop_grace_s=3.0)).after(12.9)
    assert StopTrainers(Generation(1), 3.0) not in story.last
    assert StopTrainers(Generation(1), 3.0) in story.after(0.2).last


def test_duplicates_and_older_generations_change_nothing() -> None:
    story = a_training_worker(5)
    known = story.state
    for message in (an_assignment(5), an_assignment(4), a_halt(5), a_halt(1)):
        assert story.hears(message).last == []
        assert story.state == known


def test_a_lower_epoch_than_the_highest_seen_changes_nothing() -> None:
    story = a_warm_worker().hears(an_assignment(1), epoch=7).forks()
    known = story.state
    for message in (an_assignment(2), a_halt(2), a_release(OWN)):
        for epoch in (6, None):
            assert story.hears(message, epoch=epoch).last == []
            assert story.state == known
    assert story.hears(a_halt(2), epoch=8).last == [StopTrainers(Generation(1), 5.0)]


def test_what_concerns_another_job_or_another_worker_changes_nothing() -> None:
    story = a_training_worker(1)
    known = story.state
    elsewhere = JobName("elsewhere")
    for message in (an_assignment(2, job=elsewhere), a_halt(2, job=elsewhere), a_release(OWN, job=elsewhere)):
        story.hears(message)
    assert story.hears(a_release(OTHER)).last == []
    assert story.state == known


def test_an_assignment_of_ranks_that_cannot_be_held_changes_nothing() -> None:
    story = a_warm_worker(slots=1)
    for place in (a_member(OWN, 0, 2), a_member(OWN, -1, 1), a_member(OWN, 3, 1), a_member(OWN, 0, 0)):
        assert story.hears(an_assignment(1, place)).last == []
    assert story.state.generation == 0


def test_late_word_of_older_trainers_changes_nothing() -> None:
    story = _stopped(a_training_worker(1).hears(an_assignment(2)), 1).forks()
    known = story.state
    story.exits(FAILED, generation=1)
    story.happens(StepCompleted(100.0, Generation(1), Rank(0), 9), TrainersStopped(100.0, Generation(1)))
    assert story.last == []
    assert story.state == known


def test_a_trainer_of_a_dead_generation_that_shows_up_late_is_ended() -> None:
    story = a_warm_worker().hears(a_halt(4)).happens(TrainerForked(100.0, Generation(3), Rank(0), 77))
    assert story.last == [StopTrainers(Generation(3), 0.0)]


def test_exits_are_told_and_kept_until_all_have_exited() -> None:
    story = a_training_worker(1).exits(CLEAN[0])
    assert story.facts == ["exited"]
    assert (story.state.phase, len(story.state.outcomes.exits)) == (WorkerPhase.READY, 1)
    story.exits(CLEAN[1])
    assert (story.state.phase, len(story.state.outcomes.exits)) == (WorkerPhase.ENDED, 2)
    sent = story.last[0]
    assert isinstance(sent, TellFact)
    assert sent.exit == CLEAN[1]
    assert sent.status.exits == (CLEAN[0], CLEAN[1])


def test_an_exit_is_told_only_once() -> None:
    assert a_training_worker(1).exits(FAILED).exits(FAILED).last == []


def test_a_trainer_that_lost_its_peer_is_told_as_such() -> None:
    lost = TrainerExit(rank=Rank(1), code=1, peer_lost=True)
    assert a_training_worker(1).exits(lost).facts == ["peer_lost"]


def test_a_fork_that_fails_counts_as_an_exit_and_never_makes_the_worker_ready() -> None:
    story = a_warm_worker().hears(an_assignment(1))
    story.happens(TrainerForkFailed(100.0, Generation(1), Rank(0), "no memory"))
    assert story.facts == ["exited"]
    story.happens(TrainerForked(100.0, Generation(1), Rank(1), 1001))
    assert story.facts == []
    assert story.state.phase is WorkerPhase.STARTING


def test_exits_of_an_ended_generation_are_forgotten_when_the_next_is_obeyed() -> None:
    story = a_training_worker(1).exits(*CLEAN).hears(a_halt(2))
    assert story.facts == ["parked"]
    assert story.state.outcomes.exits == ()


def test_the_first_completed_step_of_a_generation_is_told_once() -> None:
    story = a_training_worker(1)
    steps = [StepCompleted(100.0, Generation(1), Rank(rank), step) for step in (20, 21) for rank in (0, 1)]
    story.happens(*steps)
    assert story.facts == ["switched"]
    assert story.state.progress.step == 21
    sent = story.last[0]
    assert isinstance(sent, TellFact)
    assert sent.step == 20


def test_heartbeats_repeat_the_status_every_second() -> None:
    story = a_training_worker(1).exits(FAILED).after(3.05)
    statuses = [heartbeat.status for heartbeat in _heartbeats(story)]
    assert len(statuses) == 3
    assert all(status.exits == (FAILED,) for status in statuses)
    assert [status.seq for status in statuses] == list(range(statuses[0].seq, statuses[0].seq + 3))


def test_every_status_that_is_sent_has_a_greater_seq() -> None:
    story = a_training_worker(1).exits(*CLEAN).after(2.0).hears(a_halt(2)).hears(a_release(OWN))
    sent = [effect.status.seq for effect in story.effects if isinstance(effect, TellFact | SendHeartbeat)]
    assert sent == list(range(1, len(sent) + 1))


def test_no_heartbeat_goes_out_while_the_bus_is_away_and_one_at_once_when_it_is_back() -> None:
    story = a_training_worker(1)
    story.happens(BusLost(100.5)).after(5.0)
    assert _heartbeats(story) == []
    assert len(_heartbeats(story.happens(BusBack(story.now_s)))) == 1
    assert ReadStoredWorld() in story.last, "messages may have been missed"


def test_a_worker_whose_bus_stays_away_ends_by_itself() -> None:
    story = a_training_worker(1, rules=WorkerRules(orphan_s=600.0))
    story.happens(BusLost(100.0)).after(599.0)
    assert story.state.leaving is None
    story.after(2.0)
    assert StopTrainers(Generation(1), 5.0) in story.last
    leave = _stopped(story, 1).last[-1]
    assert isinstance(leave, Leave) and leave.code == 0
    assert "bus" in leave.why and "600 s" in leave.why


def test_a_notice_is_told_once_and_training_continues() -> None:
    story = a_training_worker(1).happens(NoticeCame(100.0, 15.0, "signal"), NoticeCame(100.2, 15.0, "signal"))
    assert story.last == [TellNotice(15.0, "signal")]
    assert story.state.phase is WorkerPhase.READY
    assert _heartbeats(story.after(1.0))[0].status.notice_s == 14.0


def test_a_worker_under_notice_goes_when_it_is_released() -> None:
    story = a_training_worker(1).happens(NoticeCame(100.0, 15.0, "signal"))
    story.hears(a_halt(2))
    _stopped(story, 1).hears(a_release(OWN))
    assert story.facts == ["left"]
    assert story.last[-1] == Leave(0, "released: a test")


def test_a_worker_under_notice_goes_at_the_latest_at_its_deadline() -> None:
    story = a_training_worker(1).happens(NoticeCame(100.0, 15.0, "signal")).after(13.9)
    assert story.state.leaving is None
    story.after(0.2)
    assert StopTrainers(Generation(1), 0.5) in story.last
    leave = _stopped(story, 1).last[-1]
    assert isinstance(leave, Leave) and leave.code == 0
    assert "notice (signal)" in leave.why


def test_an_earlier_deadline_counts_and_a_later_one_does_not() -> None:
    story = a_training_worker(1)
    story.happens(NoticeCame(100.0, 15.0, "signal"), NoticeCame(100.0, 30.0, "node"), NoticeCame(100.0, 4.0, "node"))
    assert story.state.notice is not None and story.state.notice.deadline_s == 104.0


def test_a_released_worker_ends_its_trainers_before_it_says_that_it_left() -> None:
    story = a_training_worker(1).hears(a_release(OWN))
    assert story.last == [StopTrainers(Generation(1), 5.0)]
    assert story.state.phase is WorkerPhase.LEAVING
    _stopped(story, 1)
    assert [type(effect) for effect in story.last] == [FlushProgress, TellFact, Leave]
    assert story.facts == ["left"]


def test_a_leaving_worker_takes_no_more_ranks() -> None:
    story = a_training_worker(1).hears(a_release(OWN)).hears(an_assignment(2))
    assert story.last == []
    assert ForkTrainers(an_assignment(2)) not in _stopped(story, 1).last


def test_a_worker_that_left_does_nothing_more() -> None:
    story = a_warm_worker().hears(a_release(OWN))
    assert story.state.left
    assert story.hears(an_assignment(9)).last == []
    assert story.wake_at_s is None


def test_asked_to_stop_it_ends_the_trainers_and_leaves() -> None:
    story = a_training_worker(1).happens(StopAsked(100.0, "interrupted", grace_s=2.0))
    assert story.last == [StopTrainers(Generation(1), 2.0)]
    assert _stopped(story, 1).last[-1] == Leave(0, "interrupted")


def test_asked_to_stop_twice_it_gives_no_more_grace() -> None:
    story = a_training_worker(1).happens(StopAsked(100.0, "interrupted"))
    assert story.happens(StopAsked(100.1, "again")).last == [StopTrainers(Generation(1), 0.0)]
    assert story.happens(StopAsked(100.2, "again")).last == []


def test_a_lost_host_takes_its_trainers_with_it_and_is_started_again() -> None:
    story = a_training_worker(1).happens(HostLost(100.0, CRASHED))
    assert story.facts == ["exited", "exited"]
    assert story.state.phase is WorkerPhase.ENDED
    assert {ended.error for ended in story.state.outcomes.exits} == {host_lost(CRASHED)}
    assert StartHost() not in story.last
    assert StartHost() in story.after(1.0).last

    story.hears(a_halt(2))
    assert story.facts == ["parked"]
    story.hears(an_assignment(2))
    assert story.last == []
    assert story.happens(HostWarmed(story.now_s)).last == [ForkTrainers(an_assignment(2))]


def test_a_host_that_is_lost_while_its_trainers_are_stopped_parks_the_worker() -> None:
    story = a_training_worker(1).hears(a_halt(2)).happens(HostLost(100.0, "gone"))
    assert story.facts == ["parked"]
    assert story.state.outcomes.exits == ()


def test_a_host_that_is_lost_again_and_again_makes_the_worker_leave_with_the_reason() -> None:
    story = a_new_worker(rules=WorkerRules(host_losses_max=3, host_backoff_s=1.0))
    waits = []
    for _ in range(3):
        before_s = story.now_s
        while story.state.host.phase == "absent" and story.state.leaving is None:
            story.after(0.5)
        waits.append(story.now_s - before_s)
        story.happens(HostLost(story.now_s, CRASHED))
    assert waits == [0.0, 1.0, 2.0]
    leave = story.last[-1]
    assert isinstance(leave, Leave) and leave.code == 1
    assert "3 times" in leave.why and leave.why.endswith(CRASHED)


def test_a_worker_that_its_host_finds_unfit_leaves_at_once_with_that_sentence() -> None:
    story = a_new_worker(rules=WorkerRules(host_losses_max=3))
    story.happens(HostLost(story.now_s, NO_GPUS, is_unfit=True))
    left = next(effect for effect in story.last if isinstance(effect, TellFact))
    assert (left.fact, left.why, left.is_unfit) == ("left", NO_GPUS, True)
    assert story.last[-1] == Leave(1, NO_GPUS)


def test_a_host_that_stayed_warm_has_made_good_for_earlier_losses() -> None:
    story = a_warm_worker(rules=WorkerRules(host_steady_s=60.0))
    story.happens(HostLost(100.0, "gone")).after(1.0).happens(HostWarmed(101.0))
    assert story.happens(HostLost(200.0, "gone")).state.host.losses == 1


def test_every_state_says_what_it_waits_for() -> None:
    story = a_new_worker()
    whys = [story.why]
    whys += [story.happens(HostWarmed(100.0)).why, story.hears(an_assignment(1)).why, story.forks().why]
    whys += [story.hears(a_halt(2)).why, _stopped(story, 1).why]
    assert len(set(whys)) == len(whys)
    assert all(whys)


def test_a_release_of_everybody_need_not_name_a_worker() -> None:
    story = a_warm_worker().hears(structs.replace(a_release(is_last=True), everybody=True))
    assert story.state.leaving is not None
