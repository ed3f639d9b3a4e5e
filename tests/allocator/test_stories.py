"""Stories of one job's capacity: what is asked of the cloud, in which order, and why."""

from dataclasses import replace

import pytest

from controlplane.allocator import events
from controlplane.allocator.effects import Announce, Change, CreatePool, DeletePool, ListPools, RemoveNodes, ResizePool
from controlplane.allocator.offers import pool_ref
from controlplane.allocator.state import new_allocator
from controlplane.clouds.interface import PoolStatus
from controlplane.clouds.outcomes import (
    AlreadyExists,
    Busy,
    NotFound,
    Outcome,
    QuotaExceeded,
    Refused,
    StockedOut,
    Throttled,
    Unfinished,
    Unreachable,
)
from messages.clusters import NodeSight
from messages.ids import JobName
from runtime.errors import UserError
from tests.allocator.stage import EU, JOB, US, A, B, C, a_full_stage, a_stage, an_offer, asked, held_by, of

# The beginning


def test_nothing_is_done_before_the_first_listing() -> None:
    stage = a_stage()
    assert asked(stage.ticks()) == [("list",)]
    assert asked(stage.sees()) == []
    assert asked(stage.ticks(1.0)) == []
    assert asked(stage.lists()) == [("create", "us-a", "3")]


def test_a_listing_that_fails_is_asked_for_again_after_a_pause_that_doubles() -> None:
    stage = a_stage()
    stage.ticks()
    for pause_s in (1.0, 2.0, 4.0):
        number = stage.allocator.listing.number
        failed = stage.happens(events.ListingFailed(stage.now_s, number, Refused("no such project", "correct it")))
        assert asked(failed) == []
        assert asked(stage.ticks(pause_s - 0.1)) == []
        assert asked(stage.ticks(0.1)) == [("list",)]
    [said] = [each for each in of(stage.effects, Announce) if each.kind == "listing_failed"]
    assert (said.text, said.why) == ("the cloud's pools could not be listed (correct it)", "no such project")


def test_a_listing_that_is_never_answered_is_asked_for_again() -> None:
    stage = a_stage()
    stage.ticks()
    assert asked(stage.ticks(59.0)) == []
    assert asked(stage.ticks(1.0)) == [("list",)]


def test_a_cluster_that_became_ready_is_listed_at_once_and_used() -> None:
    stage = a_stage(C)
    stage.ticks()
    number = stage.allocator.listing.number
    assert asked(stage.happens(events.PoolsListed(stage.now_s, number, ()))) == []
    assert "cluster eu is not ready" in stage.allocator.why
    stage.now_s += 2.0
    assert asked(stage.happens(events.ClusterBecameReady(stage.now_s, EU))) == [("list",)]
    assert asked(stage.lists()) == [("create", "eu-c", "3")]
    assert asked(stage.happens(events.ClusterBecameReady(stage.now_s, EU))) == []


def test_a_listing_that_was_asked_for_before_a_cluster_became_ready_is_followed_by_another() -> None:
    stage = a_stage(C)
    stage.ticks()
    before = stage.allocator.listing.number
    stage.now_s += 0.1
    assert asked(stage.happens(events.ClusterBecameReady(stage.now_s, EU))) == []
    stage.now_s += 0.1
    assert asked(stage.happens(events.PoolsListed(stage.now_s, before, ()))) == [("list",)]
    assert asked(stage.lists()) == [("create", "eu-c", "3")]
    assert stage.allocator.listing.news_s is None


def test_pools_of_this_job_are_adopted_and_those_of_others_are_passed_over() -> None:
    before = a_full_stage()
    after = a_stage()
    after.cloud, after.machines = before.cloud, before.machines
    other = next(iter(before.cloud.values()))
    stranger = replace(other.ref, pool="tw-other-1")
    after.cloud[stranger] = replace(other, ref=stranger, labels={"tradewind-job": "other"})
    after.ticks()
    assert asked(after.lists()) == []
    after.sees()
    assert held_by(after) == {"us-a": 3}


def test_a_pool_that_no_offer_would_make_is_kept_while_it_is_of_use() -> None:
    before = a_full_stage(an_offer("us-x"), wanted=2)
    after = a_stage(B, wanted=2)
    after.cloud, after.machines = before.cloud, before.machines
    after.ticks()
    assert asked(after.lists()) == []
    after.sees()
    after.takes("us-x-1", "us-x-2")
    lowered = after.sees()
    [given_up] = of(lowered, RemoveNodes)
    assert given_up.nodes == ("us-x-1", "us-x-2")
    [create] = of(lowered, CreatePool)
    after.ends(create)
    after.ends(given_up)
    assert of(after.lists(), DeletePool)


def test_a_pool_that_no_offer_would_make_is_not_made_again_when_its_nodes_are_seen_after_its_end() -> None:
    before = a_full_stage(an_offer("us-x"), wanted=2)
    after = a_stage(B, wanted=2)
    after.cloud, after.machines = before.cloud, before.machines
    after.ticks()
    after.lists()
    after.cloud.clear()
    after.ticks(31.0)
    [create] = of(after.lists(), CreatePool)
    after.ends(create, QuotaExceeded("none at all"))
    after.ticks(31.0)
    after.lists()
    assert asked(after.sees()) == []


def test_one_offer_given_twice_is_a_mistake_of_the_fleet_file() -> None:
    with pytest.raises(UserError, match="offered twice"):
        new_allocator(JobName("j"), (A, B, replace(A, max_nodes=1)), wanted=1, at_s=0.0)


def test_names_of_pools_are_short_differ_by_job_and_offer_and_never_change() -> None:
    long, other = JobName("a" * 62 + "b"), JobName("a" * 62 + "c")
    names = {pool_ref(job, offer).pool for job in (long, other) for offer in (A, B, C)}
    assert len(names) == 6
    assert all(len(name) <= 40 for name in names)
    assert pool_ref(JOB, A).pool == "tw-demo-18bd071b"


# Losses


def test_a_loss_gives_up_the_slot_and_raises_another_pool_in_one_decision() -> None:
    stage = a_full_stage()
    stage.takes("us-a-2")
    lost = stage.sees()
    assert asked(lost) == [("remove", "us-a", "us-a-2"), ("create", "us-b", "1")]
    assert "us-a-2 of it was lost" in of(lost, RemoveNodes)[0].why
    assert "2 of 3 nodes are held" in of(lost, CreatePool)[0].why


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


def test_a_notice_that_only_the_topology_tells_is_as_good() -> None:
    stage = a_full_stage()
    pool = stage.pool(A)
    sights = tuple(
        NodeSight(node=name, uid=node.uid, pool=pool.ref.pool, notice_s=20.0 if name == "us-a-1" else None)
        for name, node in pool.nodes.items()
    )
    assert asked(stage.happens(events.NodesSeen(stage.now_s, US, sights))) == [("create", "us-b", "1")]


def test_a_noticed_node_that_outlives_its_notice_is_removed() -> None:
    stage = a_full_stage()
    stage.notices("us-a-2", remaining_s=15.0)
    stage.now_s += 14.0
    assert asked(stage.sees()) == []
    stage.now_s += 1.0
    assert asked(stage.sees()) == [("remove", "us-a", "us-a-2")]


def test_a_machine_that_comes_back_under_the_same_name_is_another_machine() -> None:
    stage = a_full_stage()
    old = stage.machines[pool_ref(JOB, A)]["us-a-2"]
    stage.takes("us-a-2")
    stage.fills(A)
    assert asked(stage.sees()) == []
    late = events.NodeLost(stage.now_s, US, "us-a-2", old, pool_ref(JOB, A).pool, "late news")
    assert asked(stage.happens(late)) == []
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


def test_a_node_that_stays_unready_is_lost() -> None:
    stage = a_full_stage()
    stage.unready.add("us-a-1")
    stage.sees()
    assert asked(stage.ticks(10.0)) == [("remove", "us-a", "us-a-1"), ("create", "us-b", "1")]


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
    [given_up] = of(stage.sees(), RemoveNodes)
    stage.ends(given_up)
    stage.lists()
    stage.takes("us-a-2")
    assert asked(stage.sees()) == [("remove", "us-a", "us-a-2"), ("create", "eu-c", "1")]


def test_a_lost_slot_that_cannot_be_given_up_yet_keeps_the_next_pool_from_being_raised() -> None:
    stage = a_full_stage()
    stage.takes("us-a-1")
    given_up, create = stage.sees()[:2]
    assert isinstance(given_up, RemoveNodes)
    assert isinstance(create, CreatePool)
    stage.ends(create, Busy("too many operations"))
    stage.ends(given_up, Busy("too many operations"))
    assert asked(stage.ticks(0.5)) == []
    assert asked(stage.ticks(0.5)) == [("remove", "us-a", "us-a-1"), ("create", "us-b", "1")]


def test_a_slot_that_the_cloud_fills_again_while_it_is_given_up_costs_no_node_that_is_in_use() -> None:
    """By name, so that the cloud has no choice; and whoever came to fill it does not count for a moment."""
    stage = a_full_stage()
    stage.takes("us-a-2")
    given_up, create = stage.sees()[:2]
    assert isinstance(given_up, RemoveNodes)
    assert isinstance(create, CreatePool)
    stage.fills(A)
    stage.sees()
    assert held_by(stage) == {"us-a": 2}
    stage.ends(create)
    stage.fills(B)
    stage.sees()
    assert held_by(stage) == {"us-a": 2, "us-b": 1}
    late = dict(stage.machines[pool_ref(JOB, A)])
    stage.ends(given_up)
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
    [given_up] = of(stage.sees(), RemoveNodes)
    stage.ends(given_up)
    stage.machines[given_up.ref]["us-a-2"] = "filled again, and on its way out"
    stage.sees()
    assert held_by(stage) == {"us-a": 2}


def test_a_slot_that_cannot_be_given_up_by_name_is_given_up_by_number() -> None:
    stage = a_full_stage()
    stage.takes("us-a-2")
    [given_up] = of(stage.sees(), RemoveNodes)
    size = stage.cloud[given_up.ref].size
    stage.ends(given_up)
    stage.cloud[given_up.ref] = replace(stage.cloud[given_up.ref], size=size)
    assert asked(stage.lists()) == [("resize", "us-a", "2")]


# Shortages


def test_a_stockout_gives_up_what_was_not_got_and_goes_on_with_the_next_offer_at_once() -> None:
    stage = a_stage()
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    stage.does(create)
    stage.machines[create.ref] = {"us-a-1": "uid-1"}
    stage.sees()
    ended = stage.ends(create, StockedOut("GCE_STOCKOUT"))
    assert asked(ended) == [("resize", "us-a", "1"), ("create", "us-b", "2")]
    assert "GCE_STOCKOUT" in of(ended, ResizePool)[0].why
    assert [each.kind for each in of(ended, Announce)][:1] == ["zone_stocked_out"]


def test_nodes_that_do_not_come_in_time_are_given_up_before_any_are_asked_for_elsewhere() -> None:
    """The cloud still tries, and lets nobody lower the pool before it has stopped."""
    stage = a_stage()
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    stage.does(create)
    stage.machines[create.ref] = {"us-a-1": "uid-1"}
    stage.sees()
    ended = stage.ends(create, Unfinished("no end after 600 s"))
    assert asked(ended) == [("resize", "us-a", "1")]
    [lower] = of(ended, ResizePool)
    assert "no end after 600 s" in lower.why
    assert asked(stage.ends(lower, Busy("an operation is under way"))) == []
    [again] = of(stage.ticks(1.0), ResizePool)
    assert asked(stage.ends(again)) == [("create", "us-b", "2")]


def test_a_pool_that_cannot_even_be_lowered_does_not_keep_the_job_waiting_for_ever() -> None:
    stage = a_stage(A, B, wanted=1)
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    stage.does(create)
    [lower] = of(stage.ends(create, Unfinished("no end after 600 s")), ResizePool)
    stage.ends(lower, Busy("an operation is under way"))
    stage.now_s += 119.0
    assert asked(stage.ticks()) == [("resize", "us-a", "0"), ("list",)]
    assert ("create", "us-b", "1") in asked(stage.ticks(1.0))


def test_what_comes_after_all_of_a_pool_that_was_given_up_goes_as_it_comes() -> None:
    stage = a_stage(A, B, wanted=1)
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    stage.does(create)
    [lower] = of(stage.ends(create, Unfinished("no end after 600 s")), ResizePool)
    stage.now_s += 120.0
    [elsewhere] = of(stage.ends(lower, Busy("under way")), CreatePool)
    stage.ends(elsewhere)
    stage.fills(B)
    stage.fills(A)
    stage.unready.add("us-a-1")
    stage.now_s += 1.0
    assert ("remove", "us-a", "us-a-1") in asked(stage.sees())


def test_a_removal_without_an_end_is_looked_at_before_anything_else() -> None:
    stage = a_full_stage()
    stage.takes("us-a-2")
    [given_up] = of(stage.sees(), RemoveNodes)
    assert asked(stage.ends(given_up, Unfinished("no end"))) == [("list",)]
    assert stage.allocator.shelves[A.stock].closed_until_s is None


def test_a_stocked_out_zone_is_left_alone_for_a_while_that_doubles() -> None:
    stage = a_stage(A, wanted=1)
    stage.ticks()
    [ask] = of(stage.lists(), CreatePool)
    stage.does(ask)
    stage.sees()
    [shed] = of(stage.ends(ask, StockedOut("none")), ResizePool)
    for pause_s in (30.0, 60.0, 120.0):
        assert (shed.size, asked(stage.ends(shed))) == (0, [])
        stage.now_s += pause_s - 1.0
        stage.sees()
        assert not of(stage.ticks(), ResizePool)
        [again] = of(stage.ticks(1.0), ResizePool)
        assert again.size == 1
        stage.sees()
        [shed] = of(stage.ends(again, StockedOut("none")), ResizePool)


def test_a_stockout_closes_one_zone_only() -> None:
    stage = a_stage(A, replace(A, machine_type="a2-highgpu-1g"), B, wanted=1)
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    stage.does(create)
    [next_one] = of(stage.ends(create, StockedOut("none")), CreatePool)
    assert next_one.plan.machine_type == "a2-highgpu-1g"


def test_a_stockout_never_releases_a_node_that_is_held() -> None:
    stage = a_full_stage(A, wanted=3)
    [grow] = of(stage.wants(5), ResizePool)
    stage.does(grow)
    ended = stage.ends(grow, StockedOut("none"))
    assert asked(ended) == [("resize", "us-a", "3")]
    assert held_by(stage) == {"us-a": 3}


def test_an_exceeded_quota_is_looked_into_and_left_alone_for_long() -> None:
    stage = a_stage(A, B, wanted=2)
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    assert asked(stage.ends(create, QuotaExceeded("PREEMPTIBLE_NVIDIA_T4_GPUS"))) == [("list",)]
    assert asked(stage.lists()) == [("create", "us-b", "2")]
    stage.ticks(800.0)
    assert stage.allocator.shelves[A.stock].closed_until_s == 1000.0


def test_a_refusal_is_told_with_its_hint_and_the_next_offer_is_tried() -> None:
    stage = a_stage(A, B, wanted=2)
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    refused = stage.ends(create, Refused("no permission", "grant container.admin"))
    [said] = [each for each in of(refused, Announce) if each.kind == "cloud_refused"]
    assert "grant container.admin" in said.text
    assert asked(stage.lists()) == [("create", "us-b", "2")]


def test_a_pool_whose_slots_stay_empty_without_an_operation_counts_as_stocked_out() -> None:
    stage = a_full_stage(A, B)
    stage.ends(of(stage.wants(4), ResizePool)[0])
    while stage.now_s < 690.0:
        stage.now_s += 10.0
        stage.sees()
        if stage.allocator.listing.asked_s is not None:
            stage.lists()
    stage.now_s += 10.0
    assert asked(stage.sees())[:2] == [("resize", "us-a", "3"), ("create", "us-b", "1")]


def test_a_listing_that_calls_a_pool_starved_closes_its_zone() -> None:
    stage = a_full_stage(A, B)
    stage.ends(of(stage.wants(4), ResizePool)[0])
    ref = pool_ref(JOB, A)
    stage.cloud[ref] = replace(stage.cloud[ref], status=PoolStatus.RUNNING_WITH_ERROR, detail="GCE_STOCKOUT")
    stage.ticks(30.0)
    stage.sees()
    assert asked(stage.lists()) == [("resize", "us-a", "3"), ("create", "us-b", "1")]


def test_a_cluster_that_is_not_there_is_passed_over() -> None:
    stage = a_stage(C, A, wanted=1)
    stage.ticks()
    clusters = tuple(replace(cluster, ready=cluster.name != EU) for cluster in stage.clusters())
    assert asked(stage.happens(events.PoolsListed(stage.now_s, 1, clusters))) == [("create", "us-a", "1")]


# Answers


@pytest.mark.parametrize("outcome", [Busy("another one"), Throttled("slowly")])
def test_what_cannot_be_done_just_now_is_asked_for_again_after_a_pause(outcome: Outcome) -> None:
    stage = a_stage(A, wanted=2)
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    assert asked(stage.ends(create, outcome)) == []
    assert asked(stage.ticks(0.9)) == []
    [again] = of(stage.ticks(0.1), CreatePool)
    assert again.operation > create.operation
    assert asked(stage.ends(again, outcome)) == []
    assert asked(stage.ticks(1.9)) == []
    assert asked(stage.ticks(0.1)) == [("create", "us-a", "2")]


def test_after_a_lost_answer_the_pool_is_counted_as_asked_and_left_alone_until_it_was_listed() -> None:
    stage = a_stage(A, B, wanted=2)
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
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
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    stage.ends(create, Unreachable("connection lost"))
    stage.ticks(2.0)
    assert asked(stage.lists()) == [("create", "us-a", "2")]


def test_where_nobody_answered_comes_last() -> None:
    stage = a_stage(A, B, wanted=2)
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
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
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    stage.does(create)
    assert asked(stage.ends(create, AlreadyExists("it is there"))) == [("list",)]
    assert asked(stage.lists()) == []
    assert stage.pool(A).target == 2


def test_a_pool_that_somebody_deleted_is_made_again() -> None:
    stage = a_full_stage(A)
    [grow] = of(stage.wants(4), ResizePool)
    stage.cloud.clear()
    stage.machines.clear()
    assert asked(stage.ends(grow, NotFound("no such pool"))) == [("list",)]
    assert asked(stage.lists()) == []
    assert asked(stage.ticks(1.0)) == [("create", "us-a", "4")]


def test_an_answer_to_an_older_operation_teaches_nothing() -> None:
    stage = a_full_stage()
    [grow] = of(stage.wants(4), ResizePool)
    stage.happens(events.OperationEnded(stage.now_s, grow.ref, grow.operation - 1, StockedOut("late")))
    assert stage.pool(A).operation is not None
    assert stage.allocator.shelves[A.stock].failures == 0


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


# Shrinking


def test_fewer_nodes_are_wanted_but_none_is_taken_from_the_job_before_it_is_released() -> None:
    stage = a_full_stage()
    assert asked(stage.wants(2)) == []
    assert "those in use go when the job releases them" in stage.allocator.why
    assert asked(stage.releases("us-a-2")) == [("remove", "us-a", "us-a-2")]


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
    given_up, create = stage.sees()[:2]
    assert isinstance(given_up, RemoveNodes)
    assert isinstance(create, CreatePool)
    stage.ends(create)
    assert asked(stage.happens(events.JobEnded(stage.now_s, "succeeded"))) == [("delete", "us-b")]
    stage.ends(given_up)
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


# Words


def test_every_change_says_why_and_is_told_to_people() -> None:
    stage = a_full_stage()
    stage.notices("us-a-2")
    stage.takes("us-a-2")
    stage.sees()
    stage.happens(events.JobEnded(stage.now_s, "succeeded"))
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
    assert stage.allocator.why == "waiting for the first listing"
    [create] = of(stage.lists(), CreatePool)
    assert stage.allocator.why == "0 of 2 nodes held, 2 coming"
    stage.does(create)
    [shed] = of(stage.ends(create, StockedOut("none")), ResizePool)
    stage.ends(shed)
    assert stage.allocator.why == "0 of 2 nodes held; us-a has no machines and is left alone for 30 s"
