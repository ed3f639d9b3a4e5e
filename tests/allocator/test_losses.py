"""Losses: removed slots and requested replacements, in one decision."""

from dataclasses import replace

from controlplane.allocator.effects import Announce, CreatePool, RemoveNodes, ResizePool
from controlplane.allocator.explanations import more_nodes
from controlplane.allocator.offers import pool_ref
from controlplane.clouds.outcomes import (
    Busy,
    Unreachable,
)
from tests.allocator.stage import EU, JOB, US, A, B, C, a_full_stage, asked, held_by, of


def test_a_loss_gives_up_the_slot_and_raises_another_pool_in_one_decision() -> None:
    stage = a_full_stage()
    stage.takes("us-a-2")
    lost = stage.sees()
    assert asked(lost) == [("remove", "us-a", "us-a-2"), ("create", "us-b", "1")]
    assert "us-a-2" in of(lost, RemoveNodes)[0].why
    assert of(lost, CreatePool)[0].why.startswith(more_nodes(2, 3, 1, "us-b"))


def test_a_wave_of_losses_is_one_decision() -> None:
    stage = a_full_stage(wanted=6)
    stage.takes("us-a-1", "us-a-2", "us-a-3", "us-a-5")
    taken = ("us-a-1", "us-a-2", "us-a-3", "us-a-5")
    assert asked(stage.sees()) == [("remove", "us-a", *taken), ("create", "us-b", "4")]


def test_a_node_lost_by_proof_is_removed_by_name_while_it_is_still_in_sight() -> None:
    stage = a_full_stage()
    lost = stage.loses("us-a-2")
    assert asked(lost) == [("remove", "us-a", "us-a-2"), ("create", "us-b", "1")]
    assert asked(stage.ends(of(lost, RemoveNodes)[0])) == [("list",)]
    assert asked(stage.lists()) == []
    assert asked(stage.sees()) == []
    assert held_by(stage) == {"us-a": 2}


def test_a_node_that_the_cloud_had_dropped_before_it_was_to_be_removed_takes_no_slot_with_it() -> None:
    stage = a_full_stage()
    [remove] = of(stage.loses("us-a-2"), RemoveNodes)
    size = stage.cloud[remove.ref].size
    stage.ends(remove)
    stage.cloud[remove.ref] = replace(stage.cloud[remove.ref], size=size)
    assert asked(stage.lists()) == [("resize", "us-a", "2")]


def test_the_loss_of_a_region_is_answered_though_nobody_there_can_be_asked() -> None:
    stage = a_full_stage(C, A, wanted=3)
    stage.now_s += 5.0
    first = stage.loses("eu-c-1")
    assert asked(first) == [("remove", "eu-c", "eu-c-1"), ("create", "us-a", "1")]
    assert asked(stage.loses("eu-c-2") + stage.loses("eu-c-3")) == []
    stage.ends(of(first, CreatePool)[0])
    assert asked(stage.ticks(4.9)) == []
    assert asked(stage.ticks(0.1)) == [("resize", "us-a", "3")]
    stage.ends(of(first, RemoveNodes)[0], Unreachable("the region does not answer"))
    stage.ticks(2.0)
    assert asked(stage.lists()) == [("remove", "eu-c", "eu-c-1", "eu-c-2", "eu-c-3")]


def test_what_comes_back_with_a_lost_region_is_too_much_and_goes() -> None:
    stage = a_full_stage(C, A, wanted=1)
    lost = stage.loses("eu-c-1")
    stage.ends(of(lost, CreatePool)[0])
    stage.fills(A)
    stage.sees(US)
    stage.takes("eu-c-1")
    stage.fills(C)
    stage.ends(of(lost, RemoveNodes)[0], Unreachable("the region does not answer"))
    stage.sees(EU)
    stage.releases("eu-c-1", cluster=EU)
    stage.ticks(2.0)
    assert asked(stage.lists()) == [("remove", "eu-c", "eu-c-1")]
    assert held_by(stage) == {"eu-c": 1, "us-a": 1}


def test_a_noticed_node_is_replaced_at_once_but_left_alone_until_it_is_gone() -> None:
    stage = a_full_stage()
    assert asked(stage.notices("us-a-2")) == [("create", "us-b", "1")]
    stage.now_s += 5.0
    assert asked(stage.sees()) == []
    stage.takes("us-a-2")
    assert asked(stage.sees()) == [("remove", "us-a", "us-a-2")]


def test_a_noticed_node_that_outlives_its_notice_is_removed() -> None:
    stage = a_full_stage()
    stage.notices("us-a-2", remaining_s=15.0)
    stage.now_s += 14.0
    assert asked(stage.sees()) == []
    stage.now_s += 1.0
    assert asked(stage.sees()) == [("remove", "us-a", "us-a-2")]


def test_a_node_with_an_hour_of_notice_is_replaced_once_and_goes_when_its_worker_has_left_it() -> None:
    stage = a_full_stage()
    [create] = of(stage.notices("us-a-2", remaining_s=3600.0), CreatePool)
    stage.ends(create)
    stage.fills(B)
    stage.sees()
    for remaining_s in (3500.0, 3400.0):
        stage.now_s += 100.0
        assert asked(stage.notices("us-a-2", remaining_s)) == [("list",)]
        assert asked(stage.lists()) == []
    assert held_by(stage) == {"us-a": 2, "us-b": 1}
    assert asked(stage.releases("us-a-2")) == [("remove", "us-a", "us-a-2")]


def test_a_node_whose_notice_is_short_is_left_alone_though_its_worker_has_left_it() -> None:
    stage = a_full_stage()
    stage.notices("us-a-2", remaining_s=100.0)
    assert asked(stage.releases("us-a-2")) == []


def test_a_machine_that_comes_back_under_the_same_name_is_another_machine() -> None:
    stage = a_full_stage()
    stage.takes("us-a-2")
    stage.fills(A)
    assert asked(stage.sees()) == []
    assert held_by(stage) == {"us-a": 3}


def test_a_late_sight_does_not_revive_a_lost_node() -> None:
    stage = a_full_stage(A, wanted=3)
    stage.loses("us-a-2")
    stage.sees()
    assert held_by(stage) == {"us-a": 2}


def test_where_nothing_else_can_be_had_the_cloud_may_fill_the_slot_again() -> None:
    stage = a_full_stage(A)
    stage.takes("us-a-2")
    assert asked(stage.sees()) == []
    stage.fills(A)
    stage.sees()
    assert held_by(stage) == {"us-a": 3}


def test_a_lost_node_that_lingers_is_removed_though_its_pool_is_the_only_one() -> None:
    stage = a_full_stage(A)
    assert asked(stage.loses("us-a-2")) == []
    stage.now_s += 61.0
    removed = stage.sees()
    assert ("remove", "us-a", "us-a-2") in asked(removed)
    stage.lists()
    assert asked(stage.ends(of(removed, RemoveNodes)[0])) == [("list",)]
    assert asked(stage.lists()) == [("resize", "us-a", "3")]


def test_a_node_that_is_unready_for_a_moment_is_not_lost() -> None:
    stage = a_full_stage()
    stage.unready.add("us-a-1")
    stage.sees()
    stage.now_s += 9.0
    assert asked(stage.sees()) == []
    stage.unready.clear()
    stage.sees()
    stage.now_s += 9.0
    assert asked(stage.sees()) == []
    assert held_by(stage) == {"us-a": 3}


def test_a_loss_while_its_pool_grows_counts_as_on_its_way() -> None:
    stage = a_full_stage()
    [grow] = of(stage.wants(5), ResizePool)
    stage.takes("us-a-1")
    assert asked(stage.sees()) == []
    ended = stage.ends(grow)
    assert asked(ended) == [("remove", "us-a", "us-a-1"), ("create", "us-b", "1")]


def test_a_second_loss_while_the_replacement_is_on_its_way_goes_to_the_next_offer() -> None:
    stage = a_full_stage()
    stage.takes("us-a-1")
    [abandoned] = of(stage.sees(), RemoveNodes)
    stage.ends(abandoned)
    stage.lists()
    stage.takes("us-a-2")
    assert asked(stage.sees()) == [("remove", "us-a", "us-a-2"), ("create", "eu-c", "1")]


def test_a_lost_slot_that_cannot_be_given_up_yet_keeps_the_next_pool_from_being_raised() -> None:
    stage = a_full_stage()
    stage.takes("us-a-1")
    abandoned, create = stage.sees()[:2]
    assert isinstance(abandoned, RemoveNodes)
    assert isinstance(create, CreatePool)
    stage.ends(create, Busy("too many operations"))
    stage.ends(abandoned, Busy("too many operations"))
    assert asked(stage.ticks(0.5)) == []
    assert asked(stage.ticks(0.5)) == [("remove", "us-a", "us-a-1"), ("create", "us-b", "1")]


def test_a_slot_that_the_cloud_fills_again_while_it_is_given_up_costs_no_node_that_is_in_use() -> None:
    """The slot is removed by name, so that the cloud has no choice; a node that fills it does not count at first."""
    stage = a_full_stage()
    stage.takes("us-a-2")
    abandoned, create = stage.sees()[:2]
    assert isinstance(abandoned, RemoveNodes)
    assert isinstance(create, CreatePool)
    stage.fills(A)
    stage.sees()
    assert held_by(stage) == {"us-a": 2}
    stage.ends(create)
    stage.fills(B)
    stage.sees()
    assert held_by(stage) == {"us-a": 2, "us-b": 1}
    late = dict(stage.machines[pool_ref(JOB, A)])
    stage.ends(abandoned)
    gone, stage.machines[pool_ref(JOB, A)] = stage.machines[pool_ref(JOB, A)], late
    assert asked(stage.sees()) == []
    assert held_by(stage) == {"us-a": 2, "us-b": 1}
    stage.machines[pool_ref(JOB, A)] = gone
    stage.sees()
    assert asked(stage.lists()) == []
    assert held_by(stage) == {"us-a": 2, "us-b": 1}


def test_a_slot_given_up_that_is_filled_again_after_the_answer_does_not_count_either() -> None:
    stage = a_full_stage()
    stage.takes("us-a-2")
    [abandoned] = of(stage.sees(), RemoveNodes)
    stage.ends(abandoned)
    stage.machines[abandoned.ref]["us-a-2"] = "filled again, and on its way out"
    stage.sees()
    assert held_by(stage) == {"us-a": 2}


def test_the_one_that_came_to_a_slot_that_could_not_be_given_up_counts() -> None:
    """The new node may be in use by then: it is not removed in place of the lost one."""
    stage = a_full_stage()
    stage.takes("us-a-2")
    [abandoned, create] = stage.sees()[:2]
    assert isinstance(abandoned, RemoveNodes)
    assert isinstance(create, CreatePool)
    stage.fills(A)
    stage.sees()
    assert held_by(stage) == {"us-a": 2}
    stage.ends(abandoned, Busy("another operation is under way"))
    assert held_by(stage) == {"us-a": 3}
    assert of(stage.ticks(60.0), RemoveNodes) == []


def test_the_one_that_came_to_a_slot_that_a_listing_shows_as_given_up_is_no_loss_when_it_goes() -> None:
    stage = a_full_stage()
    stage.takes("us-a-2")
    [abandoned] = of(stage.sees(), RemoveNodes)
    stage.fills(A)
    stage.sees()
    stage.ends(abandoned, Unreachable("the answer was lost"))
    late = dict(stage.machines[abandoned.ref])
    stage.does(abandoned)
    gone, stage.machines[abandoned.ref] = stage.machines[abandoned.ref], late
    stage.ticks(stage.allocator.settings.doubt_s)
    stage.lists()
    assert stage.pool(A).doubt is None
    stage.sees()
    assert held_by(stage)["us-a"] == 2
    stage.machines[abandoned.ref] = gone
    assert [each.kind for each in of(stage.sees(), Announce)] == []


def test_the_one_that_is_lost_in_a_slot_that_could_not_be_given_up_stays_lost() -> None:
    stage = a_full_stage()
    stage.takes("us-a-2")
    [abandoned] = of(stage.sees(), RemoveNodes)
    stage.fills(A)
    stage.sees()
    stage.loses("us-a-2")
    stage.ends(abandoned, Busy("another operation is under way"))
    assert held_by(stage) == {"us-a": 2}


def test_a_slot_that_cannot_be_given_up_by_name_is_given_up_by_number() -> None:
    stage = a_full_stage()
    stage.takes("us-a-2")
    [abandoned] = of(stage.sees(), RemoveNodes)
    size = stage.cloud[abandoned.ref].size
    stage.ends(abandoned)
    stage.cloud[abandoned.ref] = replace(stage.cloud[abandoned.ref], size=size)
    assert asked(stage.lists()) == [("resize", "us-a", "2")]
