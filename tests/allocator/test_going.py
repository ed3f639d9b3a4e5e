"""Fewer nodes, then none; and the texts for people."""

from dataclasses import replace

from controlplane.allocator.effects import Announce, Change, CreatePool, DeletePool, ListPools, RemoveNodes, ResizePool
from controlplane.allocator.explanations import SURPLUS_IN_USE, WAITING_FOR_LISTING, closed_for, nodes_text
from controlplane.allocator.state import Shortage
from controlplane.clouds.outcomes import (
    StockedOut,
    Unreachable,
)
from tests.allocator.stage import A, B, a_full_stage, a_stage, asked, of

# Shrinking


def test_fewer_nodes_are_wanted_but_none_is_taken_from_the_job_before_it_is_released() -> None:
    stage = a_full_stage()
    assert asked(stage.wants(2)) == []
    assert stage.allocator.why == f"{nodes_text(3, 2)}; {SURPLUS_IN_USE}"
    assert asked(stage.releases("us-a-2")) == [("remove", "us-a", "us-a-2")]


def test_where_none_are_wanted_pools_go_though_nobody_releases_their_nodes() -> None:
    stage = a_full_stage()
    assert asked(stage.wants(0)) == []
    assert of(stage.ticks(89.0), DeletePool) == []
    [delete] = of(stage.ticks(2.0), DeletePool)
    assert "90 s" in delete.why
    assert of(stage.ticks(10.0), DeletePool) == []


def test_what_is_wanted_again_in_time_is_not_deleted() -> None:
    stage = a_full_stage()
    stage.wants(0)
    stage.ticks(80.0)
    stage.wants(3)
    assert of(stage.ticks(20.0), DeletePool) == []


def test_released_nodes_are_kept_as_long_as_they_are_wanted() -> None:
    stage = a_full_stage()
    assert asked(stage.releases("us-a-2")) == []


def test_a_node_that_is_in_use_again_is_not_removed() -> None:
    stage = a_full_stage()
    stage.releases("us-a-2")
    stage.releases()
    assert asked(stage.wants(2)) == []


def test_what_has_not_come_yet_is_given_up_before_anything_else() -> None:
    stage = a_full_stage()
    [grow] = of(stage.wants(5), ResizePool)
    stage.ends(grow)
    stage.sees()
    assert asked(stage.wants(3)) == [("resize", "us-a", "3")]


def test_what_the_cloud_says_is_there_is_not_given_up_by_number_before_it_was_looked_for() -> None:
    """The cloud would choose the node, and the job may use the others."""
    stage = a_full_stage()
    [grow] = of(stage.wants(5), ResizePool)
    stage.now_s += 1.0
    stage.ends(grow)
    assert asked(stage.wants(3)) == []
    stage.now_s += 1.0
    assert asked(stage.sees()) == [("resize", "us-a", "3")]


def test_of_two_nodes_too_many_the_one_that_never_was_ready_goes_first() -> None:
    stage = a_full_stage(A, wanted=3)
    [grow] = of(stage.wants(4), ResizePool)
    stage.ends(grow)
    stage.fills(A)
    stage.unready.add("us-a-4")
    stage.sees()
    stage.releases("us-a-1", "us-a-4")
    assert asked(stage.wants(3)) == [("remove", "us-a", "us-a-4")]


def test_a_pool_is_not_shrunk_by_a_sight_that_is_too_old() -> None:
    stage = a_full_stage()
    [grow] = of(stage.wants(5), ResizePool)
    stage.ends(grow)
    stage.ticks(16.0)
    assert asked(stage.wants(3)) == []
    assert asked(stage.sees()) == [("resize", "us-a", "3")]


def test_an_adopted_pool_is_not_shrunk_before_its_nodes_were_seen() -> None:
    before = a_full_stage(A, B)
    after = a_stage(A, B, wanted=1)
    after.cloud, after.machines = before.cloud, before.machines
    after.ticks()
    assert asked(after.lists()) == []
    assert asked(after.sees()) == []
    assert asked(after.releases("us-a-1", "us-a-3")) == [("remove", "us-a", "us-a-1", "us-a-3")]


# The end


def test_at_the_end_every_pool_is_deleted_until_a_listing_shows_none() -> None:
    stage = a_full_stage()
    stage.takes("us-a-2")
    abandoned, create = stage.sees()[:2]
    assert isinstance(abandoned, RemoveNodes)
    assert isinstance(create, CreatePool)
    stage.ends(create)
    assert asked(stage.job_ends("succeeded")) == [("delete", "us-b")]
    stage.ends(abandoned)
    [delete_a] = of(stage.lists(), DeletePool)
    stage.ends(delete_a)
    [delete_b] = [each for each in of(stage.effects, DeletePool) if each.ref == create.ref]
    stage.ends(delete_b, Unreachable("connection lost"))
    stage.ticks(2.0)
    [again] = of(stage.lists(), DeletePool)
    assert not stage.allocator.finished
    stage.ends(again)
    stage.ticks(9.0)
    assert not of(stage.effects[-1:], ListPools)
    assert asked(stage.ticks(1.0)) == [("list",)]
    stage.lists()
    assert stage.allocator.finished
    assert stage.ticks(100.0) == []


def test_the_pools_of_a_job_that_ended_while_nobody_looked_are_deleted() -> None:
    before = a_full_stage()
    after = a_stage()
    after.cloud = before.cloud
    after.allocator = replace(after.allocator, ended="stopped")
    after.ticks()
    [delete] = of(after.lists(), DeletePool)
    after.ends(delete)
    after.ticks(10.0)
    after.lists()
    assert after.allocator.finished


def test_a_pool_that_a_dead_master_asked_for_late_is_found_and_deleted() -> None:
    before = a_full_stage()
    stage = a_stage()
    stage.allocator = replace(stage.allocator, ended="stopped")
    stage.ticks()
    stage.lists()
    assert not stage.allocator.finished
    stage.cloud = before.cloud
    stage.ticks(10.0)
    assert asked(stage.lists()) == [("delete", "us-a")]


# Texts


def test_every_change_says_why_and_is_told_to_people() -> None:
    stage = a_full_stage()
    stage.notices("us-a-2")
    stage.takes("us-a-2")
    stage.sees()
    stage.job_ends("succeeded")
    for effect in stage.effects:
        if isinstance(effect, Change | ListPools):
            assert effect.why
    kinds = [effect.kind for effect in of(stage.effects, Announce)]
    assert kinds == [
        "pool_created",
        "capacity_reached",
        "node_noticed",
        "pool_created",
        "node_lost",
        "pool_lowered",
    ]


def test_waiting_is_explained_too() -> None:
    stage = a_stage(A, wanted=2)
    assert stage.ticks()
    assert stage.allocator.why == WAITING_FOR_LISTING
    [create] = of(stage.lists(), CreatePool)
    assert stage.allocator.why == nodes_text(0, 2, coming=2)
    stage.does(create)
    [shed] = of(stage.ends(create, StockedOut("none")), ResizePool)
    stage.ends(shed)
    assert stage.allocator.why == f"{nodes_text(0, 2)}; {closed_for('us-a', Shortage.STOCKOUT, 30.0)}"
