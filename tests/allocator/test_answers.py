"""Answers that are lost, late, or temporary refusals."""

from dataclasses import replace

import pytest

from controlplane.allocator import events
from controlplane.allocator.effects import Announce, CreatePool, ResizePool
from controlplane.allocator.offers import pool_ref
from controlplane.clouds.interface import PoolStatus
from controlplane.clouds.outcomes import (
    AlreadyExists,
    Busy,
    NotFound,
    Outcome,
    StockedOut,
    Throttled,
    Unreachable,
)
from tests.allocator.stage import JOB, A, B, a_full_stage, a_stage, asked, held_by, of


@pytest.mark.parametrize("outcome", [Busy("another one"), Throttled("slowly")])
def test_what_cannot_be_done_just_now_is_asked_for_again_after_a_pause(outcome: Outcome) -> None:
    stage = a_stage(A, wanted=2)
    create = stage.begins()
    assert asked(stage.ends(create, outcome)) == []
    assert asked(stage.ticks(0.9)) == []
    [again] = of(stage.ticks(0.1), CreatePool)
    assert again.operation > create.operation
    assert asked(stage.ends(again, outcome)) == []
    assert asked(stage.ticks(1.9)) == []
    assert asked(stage.ticks(0.1)) == [("create", "us-a", "2")]


def test_people_are_told_once_of_a_pool_that_is_asked_for_again_and_again() -> None:
    stage = a_stage(A, wanted=2)
    outcome = Busy("another one")
    stage.ends(stage.begins(), outcome)
    for _ in range(20):
        for create in of(stage.ticks(60.0), CreatePool):
            stage.ends(create, outcome)
    assert len(of(stage.effects, CreatePool)) == 21
    assert [each.kind for each in of(stage.effects, Announce)] == ["pool_created", "pool_trouble"]


def test_after_a_lost_answer_the_pool_is_counted_as_asked_and_left_alone_until_it_was_listed() -> None:
    stage = a_stage(A, B, wanted=2)
    create = stage.begins()
    assert asked(stage.ends(create, Unreachable("connection lost"))) == []
    assert asked(stage.ticks(1.9)) == []
    assert asked(stage.ticks(0.1)) == [("list",)]
    stage.does(create)
    assert asked(stage.lists()) == []
    stage.fills(A)
    stage.sees()
    assert held_by(stage) == {"us-a": 2}


def test_a_request_that_never_arrived_is_asked_for_again_once_the_listing_shows_it() -> None:
    stage = a_stage(A, wanted=2)
    create = stage.begins()
    stage.ends(create, Unreachable("connection lost"))
    stage.ticks(2.0)
    assert asked(stage.lists()) == [("create", "us-a", "2")]


def test_where_nobody_answered_comes_last() -> None:
    stage = a_stage(A, B, wanted=2)
    create = stage.begins()
    stage.ends(create, Unreachable("connection lost"))
    stage.ticks(2.0)
    assert asked(stage.lists()) == [("create", "us-b", "2")]


def test_a_listing_that_was_asked_for_before_the_answer_was_lost_settles_nothing() -> None:
    stage = a_full_stage(A, B)
    stage.ticks(30.0)
    [grow] = of(stage.wants(4), ResizePool)
    stage.ends(grow, Unreachable("connection lost"))
    assert asked(stage.lists()) == []
    assert stage.pool(A).doubt is not None


def test_a_pool_in_doubt_that_is_still_being_made_stays_in_doubt() -> None:
    stage = a_full_stage(A, B)
    [grow] = of(stage.wants(4), ResizePool)
    stage.ends(grow, Unreachable("connection lost"))
    ref = pool_ref(JOB, A)
    stage.cloud[ref] = replace(stage.cloud[ref], status=PoolStatus.PROVISIONING)
    stage.ticks(2.0)
    stage.lists()
    assert stage.pool(A).doubt is not None
    stage.cloud[ref] = replace(stage.cloud[ref], status=PoolStatus.RUNNING, size=4)
    assert asked(stage.ticks(4.0)) == [("list",)]
    assert asked(stage.lists()) == []
    assert (stage.pool(A).doubt, stage.pool(A).target) == (None, 4)


def test_a_pool_that_exists_already_is_looked_at_and_adopted() -> None:
    stage = a_stage(A, B, wanted=2)
    create = stage.begins()
    stage.does(create)
    exists = AlreadyExists("it is there")
    assert asked(stage.ends(create, exists)) == [("list",)]
    assert asked(stage.lists()) == []
    assert stage.pool(A).target == 2


def test_a_pool_that_somebody_deleted_is_made_again() -> None:
    stage = a_full_stage(A)
    [grow] = of(stage.wants(4), ResizePool)
    stage.cloud.clear()
    stage.machines.clear()
    gone = NotFound("no such pool")
    assert asked(stage.ends(grow, gone)) == [("list",)]
    assert asked(stage.lists()) == []
    assert asked(stage.ticks(1.0)) == [("create", "us-a", "4")]


def test_an_answer_to_an_older_operation_teaches_nothing() -> None:
    stage = a_full_stage()
    [grow] = of(stage.wants(4), ResizePool)
    stage.happens(events.OperationEnded(stage.now_s, grow.ref, grow.operation - 1, StockedOut("late")))
    assert stage.pool(A).operation is not None
    assert stage.allocator.availability[A.kind].closed is None


def test_a_listing_older_than_an_answer_does_not_undo_it() -> None:
    stage = a_full_stage()
    stage.ticks(30.0)
    old = stage.clusters()
    number = stage.allocator.listing.number
    [grow] = of(stage.wants(4), ResizePool)
    stage.now_s += 1.0
    stage.ends(grow)
    assert asked(stage.happens(events.PoolsListed(stage.now_s, number, old))) == []
    assert stage.pool(A).target == 4
