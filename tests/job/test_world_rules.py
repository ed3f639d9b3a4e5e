"""Which workers and ranks are in a world, join it, leave it, or are replaced in it."""

import pytest
from msgspec.structs import replace

from controlplane.job.commands import REPEAT_S
from controlplane.job.live.trainers import (
    detached,
    finishing,
    is_live,
    joining_workers,
    level,
    never_parked,
    survivors,
    terms,
    to_invite,
    top,
    whole,
)
from controlplane.job.overdue import (
    has_switched,
    some_switched,
)
from controlplane.job.reload import ask_for_reload, can_do_without_one, tries_new_code
from controlplane.job.state import Barred, Failure
from messages.ids import Generation, Rank, WorkerId
from messages.records import Phase
from messages.workers import TrainerStatus, WorkerPhase
from messages.worlds import Entry, Invite, LiveWorld
from tests.job.built import (
    A,
    B,
    C,
    a_running_job,
    a_training_job,
    fresh,
    halted,
    recorded,
    with_round,
    with_trainer,
    with_worker,
)
from tests.job.live_stage import a_live_job
from tests.job.stage import a_spec, a_stage, clean, failed, published


def test_a_plain_script_is_never_joined_by_an_invitation_and_a_live_one_repeats_it() -> None:
    plain = a_stage(a_spec(workers=3, settle_s=50.0)).runs("a", "b")
    assert published(plain.join("c"), Invite) == []
    stage = a_live_job("a", "b", wanted=3)
    assert [invite.workers for invite in published(stage.join("c"), Invite)] == [("c",)]
    assert published(stage.wait(REPEAT_S - 0.1), Invite) == []
    assert [invite.workers for invite in published(stage.wait(0.1), Invite)] == [("c",)]


def test_a_worker_is_invited_if_it_is_heard_lacks_trainers_and_is_not_barred() -> None:
    job = recorded(a_training_job("a", "b"), wanted=3)
    joins = with_worker(job, C, trainers=())
    assert to_invite(joins, 100.0) == [C]
    for changes in ({"seq": -1}, {"trainers": (TrainerStatus(0),)}, {"phase": WorkerPhase.WARMING}):
        assert to_invite(with_worker(joins, C, **changes), 100.0) == []
    assert to_invite(with_worker(joins, C, seq=0), 100.0) == [C]
    barred = replace(joins, failures=replace(joins.failures, barred={C: Barred(1, 105.0)}))
    assert (to_invite(barred, 104.9), to_invite(barred, 105.0)) == ([], [C])
    world = job.record.assignment
    assert world is not None
    prepared = replace(world, members=(replace(world.members[0], worker=C),))
    assert to_invite(recorded(joins, prepared=prepared), 100.0) == []
    waits = recorded(halted(joins), phase=Phase.WAITING)
    assert to_invite(waits, 100.0) == [C]


def test_a_joining_worker_has_all_its_trainers_outside_of_the_running_world() -> None:
    job = a_training_job("a", "b")
    waits = TrainerStatus(0)
    assert joining_workers(with_worker(job, C, trainers=(waits,)))[-1].worker == C
    for changes in (
        {"finished": True},
        {"resting": True},
        {"generation": Generation(1)},
        {"generation": Generation(1), "parked": Generation(1)},
        {"local_rank": 1},
    ):
        assert joining_workers(with_worker(job, C, trainers=(replace(waits, **changes),))) == []
    left = replace(waits, generation=Generation(1), parked=Generation(2))
    assert [each.worker for each in joining_workers(with_worker(job, C, trainers=(left,)))] == [C]


def test_survivors_have_the_state_on_all_their_ranks_or_on_whole_replicas() -> None:
    job = halted(a_training_job("a", "b", ranks=2))
    assert [each.worker for each in survivors(job)] == [A, B]
    for changes in ({"active": False}, {"generation": Generation(0)}, {"local_rank": 3}):
        assert [each.worker for each in survivors(with_trainer(job, B, 1, **changes))] == [A]
    finished = with_trainer(job, B, 1, finished=True)
    assert [each.worker for each in survivors(finished)] == [A, B]
    assert [each.worker for each in survivors(with_trainer(finished, B, 0, finished=True))] == [A]
    alone = fresh(job)
    alone.workers.drop(B)
    half = with_worker(alone, A, trainers=alone.workers[A].trainers[:1])
    assert [(each.worker, each.slots, len(each.trainers)) for each in survivors(half)] == [(A, 1, 1)]
    in_pairs = replace(half, spec=replace(half.spec, replica=2))
    assert survivors(fresh(in_pairs)) == []


def test_an_extra_trainer_of_a_survivor_has_no_rank_in_the_next_world() -> None:
    job = halted(a_training_job("a", "b"))
    extra = TrainerStatus(1, generation=Generation(1), active=True)
    job = with_worker(job, A, slots=2, trainers=(*job.workers[A].trainers, extra))
    assert [(each.worker, each.slots, len(each.trainers)) for each in survivors(job)] == [(A, 1, 1), (B, 1, 1)]


@pytest.mark.parametrize(("done", "kept"), [(4, [A, B]), (3, [B])])
def test_a_worker_two_steps_behind_joins_again_without_its_state(done: int, kept: list[WorkerId]) -> None:
    job = with_trainer(a_training_job("a", "b"), A, 0, done=done)
    assert [each.worker for each in level([job.workers[A], job.workers[B]])] == kept


@pytest.mark.parametrize(
    ("slots", "replica", "kept"), [((1, 1, 1), 2, 2), ((2, 1), 2, 1), ((1, 1), 1, 2), ((1,), 2, 1)]
)
def test_the_last_workers_are_left_out_for_whole_replicas(slots: tuple[int, ...], replica: int, kept: int) -> None:
    workers = [replace(a_running_job().workers[A], slots=number) for number in slots]
    assert whole(workers, replica) == workers[:kept]


def test_a_trainer_that_reports_no_end_is_detached_and_one_that_ended_is_not() -> None:
    job = a_training_job("a", "b", ranks=2)
    world = job.record.assignment
    assert world is not None
    member, worker = world.members[1], job.workers[B]
    assert not detached(world, member, worker)
    half = replace(worker, trainers=worker.trainers[:1])
    assert detached(world, member, half)
    assert not detached(world, member, replace(half, exits=(clean(3),)))
    assert detached(world, member, replace(half, exits=(clean(2),)))
    assert detached(world, member, replace(half, exits=(clean(3),), generation=Generation(9)))


def test_those_that_never_parked_may_still_train() -> None:
    job = halted(a_training_job("a", "b"))
    assert never_parked(job) == [A, B]
    for changes in ({"parked": Generation(2)}, {"finished": True}, {"generation": Generation(0)}):
        assert never_parked(with_trainer(job, A, 0, **changes)) == [B]
    assert never_parked(with_trainer(job, A, 0, parked=Generation(1))) == [A, B]
    assert never_parked(with_worker(job, A, noticed="spot")) == [B]


def test_a_worker_finishes_when_all_its_ranks_have_done_the_last_step() -> None:
    job = with_trainer(a_training_job("a", "b", ranks=2), A, 0, finished=True)
    assert finishing(job) == []
    assert finishing(with_trainer(job, A, 1, finished=True)) == [A]


def test_terms_are_those_of_the_first_trainer_in_the_world() -> None:
    job = a_training_job("a", "b")
    assert terms(job) == ""
    job = with_trainer(with_trainer(job, A, 0, terms="ours", generation=Generation(0)), B, 0, terms="theirs")
    assert terms(job) == "theirs"
    assert terms(with_trainer(job, A, 0, generation=Generation(1))) == "ours"


@pytest.mark.parametrize(("parked", "broken", "highest"), [(0, 0, 1), (9, 0, 9), (9, 8, 1), (9, 7, 9), (1, 0, 1)])
def test_a_trainer_that_left_a_broken_world_by_itself_uses_no_generation(
    parked: int, broken: int, highest: int
) -> None:
    job = with_trainer(a_training_job("a"), A, 0, parked=Generation(parked), broken=Generation(broken))
    assert top(job) == highest


def test_a_world_is_live_if_each_rank_trains_in_it() -> None:
    job = a_training_job("a", "b", ranks=2)
    assert is_live(job)
    assert not is_live(with_trainer(job, B, 1, generation=Generation(0)))
    assert not is_live(with_worker(job, B, trainers=job.workers[B].trainers[:1]))
    extra = TrainerStatus(2, generation=Generation(0))
    assert is_live(with_worker(job, B, trainers=(*job.workers[B].trainers, extra)))
    ended = with_round(job, clean=frozenset({Rank(2), Rank(3)}))
    assert is_live(with_worker(ended, B, trainers=()))


def test_a_prepared_world_has_begun_when_one_rank_with_the_state_is_in_it() -> None:
    job = a_training_job("a", "b")
    world = job.record.assignment
    assert world is not None
    following = replace(world, generation=Generation(2), live=LiveWorld(Entry.PLANNED, (0, 1)))
    assert not some_switched(job, following) and not has_switched(job, following)
    one = with_trainer(job, A, 0, generation=Generation(2))
    assert some_switched(one, following) and not has_switched(one, following)
    assert not some_switched(with_trainer(one, A, 0, active=False), following)
    both = with_trainer(one, B, 0, generation=Generation(3))
    assert has_switched(both, following)
    both.workers.drop(B)
    assert not has_switched(both, following)


def test_a_reload_marks_all_workers_members_first_and_forgets_an_earlier_failure() -> None:
    job = with_worker(a_running_job("a", "b"), WorkerId("Z"))
    job = replace(job, failures=replace(job.failures, joining=Failure(C, failed(0))))
    asked = ask_for_reload(job)
    assert (asked.record.outdated, asked.record.reloads) == (("a", "b", "Z"), 1)
    assert asked.failures.joining is None
    ended = recorded(job, phase=Phase.STOPPED)
    assert ask_for_reload(ended) is ended


@pytest.mark.parametrize(
    ("slots", "replica", "least", "possible"),
    [((1, 1), 1, 1, True), ((1, 1), 1, 2, False), ((2, 1, 1), 2, 1, True), ((1, 1), 2, 1, False), ((2, 2), 2, 1, True),
     ((2, 1), 1, 1, True), ((2, 1, 1), 2, 2, False)],
)  # fmt: skip
def test_a_job_can_do_without_each_single_worker(
    slots: tuple[int, ...], replica: int, least: int, possible: bool
) -> None:
    job = a_running_job(*"abc"[: len(slots)])
    for name, number in zip("abc", slots, strict=False):
        job = with_worker(job, WorkerId(name), slots=number)
    spec = replace(job.spec, replica=replica, workers=replace(job.spec.workers, min=least))
    assert can_do_without_one(replace(job, spec=spec)) is possible


def test_new_code_is_tried_while_a_survivor_runs_the_old() -> None:
    job = halted(a_training_job("a", "b", "c"))
    tried = recorded(job, outdated=(B,))
    assert [tries_new_code(tried, name) for name in (A, B, C)] == [True, False, True]
    assert not tries_new_code(job, A)
