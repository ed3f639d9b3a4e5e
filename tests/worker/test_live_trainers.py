"""Trainers that attach to the worker-agent: commands to them, facts about them, messages that are ignored."""

from msgspec import structs

from agents.worker.commands import Enter, Lease, Park
from agents.worker.effects import StopTrainers, TellTrainer
from agents.worker.events import (
    BusLost,
    NoticeCame,
    StepCompleted,
    TrainerAttached,
    TrainerDetached,
    TrainerForked,
    TrainerSaid,
)
from messages.ids import Generation, Rank
from messages.workers import TrainerExit, WorkerPhase
from tests.worker.builders import (
    OWN,
    a_halt,
    a_live_worker,
    a_member,
    a_repair,
    a_training_worker,
    an_assignment,
    in_world,
    parked_at,
)


def test_a_trainer_that_attaches_is_told_the_world_it_was_forked_for() -> None:
    story = a_training_worker(1).attaches(1)
    world = an_assignment(1, a_member(OWN, 0, 2))
    assert story.words == [(1, Enter(world, Rank(1)))]
    assert story.attaches(0).words == [(0, Enter(world, Rank(0)))]


def test_a_trainer_that_does_not_show_what_it_was_told_is_told_again_after_a_second() -> None:
    story = a_training_worker(1).attaches(0)
    assert story.after(0.99).words == []
    assert [local_rank for local_rank, _ in story.after(0.02).words] == [0]
    story.reports_status(in_world(1), 0)
    assert story.after(5.0).words == []


def test_steps_of_attached_trainers_are_counted_and_not_told_a_second_time() -> None:
    story = a_live_worker(1).happens(StepCompleted(100.0, Generation(1), Rank(0), 9))
    assert story.facts == []
    assert story.state.progress.step == 9


def test_a_connection_that_breaks_says_nothing_and_only_forgets_the_status() -> None:
    story = a_live_worker(1).happens(TrainerDetached(100.0, Generation(1), Rank(1)))
    assert story.last == []
    assert story.state.phase is WorkerPhase.READY
    status = story.exits(TrainerExit(rank=Rank(0), signal="SIGKILL")).sent.status
    assert status.trainers == ()
    assert [ended.rank for ended in status.exits] == [0]


def test_a_trainer_that_attaches_again_is_told_again_what_it_does_not_show() -> None:
    story = a_live_worker(1).hears(a_halt(2))
    story.happens(TrainerDetached(100.0, Generation(1), Rank(0)), TrainerAttached(100.0, Generation(1), Rank(0)))
    assert (0, Park(Generation(2))) in story.words


def test_a_trainer_that_attaches_over_its_own_connection_is_told_at_once() -> None:
    story = a_training_worker(1).attaches(0)
    assert [local_rank for local_rank, _ in story.attaches(0).words] == [0]


def test_a_next_world_that_a_trainer_cannot_build_is_told_at_once() -> None:
    story = a_live_worker(1).reports_status(in_world(1, broken=2), 0)
    assert story.facts == ["peer_lost"]
    assert story.sent.status.trainers[0].broken == 2


def test_a_broken_collective_is_told_at_once_and_once() -> None:
    story = a_live_worker(1).reports_status(in_world(1, broken=1), 0)
    assert story.facts == ["peer_lost"]
    assert story.sent.exit is None
    assert story.sent.status.trainers[0].broken == 1
    assert story.reports_status(in_world(1, done=8, broken=1), 0).facts == []
    assert story.reports_status(in_world(1, 1, broken=1), 1).facts == ["peer_lost"]


def test_trainers_hear_with_every_heartbeat_that_the_bus_is_there_and_nothing_while_it_is_not() -> None:
    story = a_live_worker(1).after(3.05)
    leases = [effect for effect in story.last if isinstance(effect, TellTrainer)]
    assert leases == [TellTrainer(Generation(1), Rank(rank), Lease(2.0)) for _ in range(3) for rank in range(2)]
    assert story.happens(BusLost(story.now_s)).after(3.0).last == []


def test_a_trainer_that_attaches_hears_at_once_whether_the_bus_is_there() -> None:
    greeting = TellTrainer(Generation(1), Rank(0), Lease(2.0))
    assert greeting in a_training_worker(1).attaches(0).last
    assert greeting not in a_training_worker(1).happens(BusLost(100.0)).attaches(0).last


def test_a_live_worker_under_notice_goes_at_the_latest_at_its_deadline() -> None:
    story = a_live_worker(1).happens(NoticeCame(100.0, 15.0, "signal")).after(14.1)
    assert StopTrainers(Generation(1), 0.5) in story.last


def test_strangers_teach_nothing() -> None:
    story = a_live_worker(1)
    known = story.state
    story.happens(TrainerAttached(100.0, Generation(9), Rank(0)), TrainerDetached(100.0, Generation(9), Rank(0)))
    story.happens(TrainerSaid(100.0, Generation(9), Rank(0), in_world(9)))
    story.happens(TrainerForked(100.0, Generation(1), Rank(0), 5))
    assert story.state == known


class TestWhoEndsWhenItsWorldWasHaltedAlready:
    def test_is_told_with_how_it_ended_until_the_next_halt(self) -> None:
        story = a_live_worker(1).hears(a_halt(2)).exits(TrainerExit(Rank(1), code=1, tail=("a bug",)))
        [fallen] = story.state.outcomes.fallen
        assert (fallen.generation, fallen.local_rank, fallen.exit.code) == (2, 1, 1)
        story.reports_status(parked_at(2, 1), 0)
        assert story.sent.status.fallen == (fallen,)

    def test_counts_in_the_next_world_if_that_was_made_with_it(self) -> None:
        story = a_live_worker(1).hears(a_halt(2)).reports_status(parked_at(2, 1))
        story.exits(TrainerExit(Rank(1), code=1, tail=("a bug",)), generation=1)
        story.hears(a_repair(2, a_member(OWN, 0, 2)))
        assert [(ended.rank, ended.code) for ended in story.state.outcomes.exits] == [(1, 1)]
        assert story.state.outcomes.fallen == ()

    def test_has_fallen_if_it_crashed(self) -> None:
        crashed = TrainerExit(Rank(1), signal="SIGSEGV")
        [fallen] = a_live_worker(1).hears(a_halt(2)).exits(crashed).state.outcomes.fallen
        assert fallen.exit.signal == "SIGSEGV"

    def test_has_not_fallen_if_it_had_finished_or_lost_a_peer_or_was_killed(self) -> None:
        for ended in (TrainerExit(Rank(1), code=1, peer_lost=True), TrainerExit(Rank(1), signal="SIGKILL")):
            assert a_live_worker(1).hears(a_halt(2)).exits(ended).state.outcomes.fallen == ()
        finished = structs.replace(in_world(1, 1), finished=True)
        story = a_live_worker(1).reports_status(finished, 1).hears(a_halt(2)).exits(TrainerExit(Rank(1), code=0))
        assert story.state.outcomes.fallen == ()

    def test_ended_early_if_it_ended_with_0_and_had_not_finished(self) -> None:
        story = a_live_worker(1).exits(TrainerExit(Rank(1), code=0))
        assert [ended.early for ended in story.state.outcomes.exits] == [True]
        done = structs.replace(in_world(1, 1), finished=True)
        story = a_live_worker(1).reports_status(done, 1).exits(TrainerExit(Rank(1), code=0))
        assert [ended.early for ended in story.state.outcomes.exits] == [False]
        assert not a_training_worker(1).exits(TrainerExit(Rank(1), code=0)).state.outcomes.exits[0].early
