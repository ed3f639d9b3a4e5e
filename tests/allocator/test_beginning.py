"""From the first listing: found pools, created pools, and waits."""

from dataclasses import replace

import pytest

from controlplane.allocator import events
from controlplane.allocator.effects import Announce, CreatePool, DeletePool, RemoveNodes
from controlplane.allocator.explanations import not_ready
from controlplane.allocator.offers import pool_ref
from controlplane.allocator.state import new_allocator
from controlplane.clouds.outcomes import (
    QuotaExceeded,
    Refused,
)
from messages.ids import JobName
from runtime.errors import UserError
from tests.allocator.stage import EU, JOB, A, B, C, a_full_stage, a_stage, an_offer, asked, held_by, of


def test_nothing_is_done_before_the_first_listing() -> None:
    stage = a_stage()
    assert asked(stage.ticks()) == [("list",)]
    assert asked(stage.sees()) == []
    assert asked(stage.ticks(1.0)) == []
    assert asked(stage.lists()) == [("create", "us-a", "3")]


def test_a_listing_that_fails_is_asked_for_again_after_a_pause_that_doubles() -> None:
    stage = a_stage()
    stage.ticks()
    refused = Refused("no such project", "correct it")
    for pause_s in (1.0, 2.0, 4.0):
        number = stage.allocator.listing.number
        failed = stage.happens(events.ListingFailed(stage.now_s, number, refused))
        assert asked(failed) == []
        assert asked(stage.ticks(pause_s - 0.1)) == []
        assert asked(stage.ticks(0.1)) == [("list",)]
    [said] = [each for each in of(stage.effects, Announce) if each.kind == "listing_failed"]
    assert (f"({refused.hint})" in said.text, said.why) == (True, refused.detail)


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
    assert not_ready(EU) in stage.allocator.why
    stage.now_s += 2.0
    assert asked(stage.happens(events.ReadinessSeen(stage.now_s, EU))) == [("list",)]
    assert asked(stage.lists()) == [("create", "eu-c", "3")]
    assert asked(stage.happens(events.ReadinessSeen(stage.now_s, EU))) == []


def test_a_listing_that_was_asked_for_before_a_cluster_became_ready_is_followed_by_another() -> None:
    stage = a_stage(C)
    stage.ticks()
    before = stage.allocator.listing.number
    stage.now_s += 0.1
    assert asked(stage.happens(events.ReadinessSeen(stage.now_s, EU))) == []
    stage.now_s += 0.1
    assert asked(stage.happens(events.PoolsListed(stage.now_s, before, ()))) == [("list",)]
    assert asked(stage.lists()) == [("create", "eu-c", "3")]
    assert stage.allocator.listing.unlisted_s is None


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
    [abandoned] = of(lowered, RemoveNodes)
    assert abandoned.nodes == ("us-x-1", "us-x-2")
    [create] = of(lowered, CreatePool)
    after.ends(create)
    after.ends(abandoned)
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
