"""Rules of the allocator core at their limits, each called directly."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.allocator import events
from controlplane.allocator.effects import DeletePool, RemoveNodes, ResizePool, ShareStock
from controlplane.allocator.offers import pool_ref
from controlplane.allocator.starts import give_up_unstartable, is_blocked, room_of, start_times
from controlplane.allocator.state import Allocator, Block, Node
from controlplane.allocator.timing import next_listing, quiet_from_s, wake_at_s
from controlplane.clouds.outcomes import Busy, Done
from messages.ids import ClusterName
from tests.allocator.stage import JOB, US, A, a_full_stage, a_stage, of

NOW_S = 1000.0


def with_node(**changes: Any) -> Allocator:
    """One node that was ready; the pools were listed just now."""
    stage = a_full_stage(A, wanted=1)
    ref = pool_ref(JOB, A)
    pool = stage.allocator.pools[ref]
    ((name, node),) = pool.nodes.items()
    pool = replace(pool, nodes={name: replace(node, was_ready=True, **changes)}, empty_since_s=None)
    listing = replace(stage.allocator.listing, learned_s=NOW_S, asked_s=None, unlisted_s=None)
    return replace(stage.allocator, pools={ref: pool}, listing=listing, unwanted_since_s=None)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"sidelined_s": NOW_S}, "unready_timeout_s"),
        ({"unready_s": NOW_S}, "unready_s"),
        ({"was_ready": False, "first_seen_s": NOW_S}, "arrival_s"),
    ],
)
def test_a_node_is_looked_at_again_when_its_time_is_over(changes: dict[str, Any], limit: str) -> None:
    allocator = with_node()
    ref = pool_ref(JOB, A)
    ((name, node),) = allocator.pools[ref].nodes.items()
    pool = replace(allocator.pools[ref], nodes={name: replace(node, **changes)})
    limits: dict[str, Any] = {limit: 7.0}
    settings = replace(allocator.settings, relist_s=1e6, **limits)
    assert wake_at_s(replace(allocator, pools={ref: pool}, settings=settings), NOW_S) == NOW_S + 7.0


def test_a_noticed_node_is_looked_at_when_its_notice_is_over_and_a_lost_one_when_its_slot_is_owed() -> None:
    allocator = with_node(notice_until_s=NOW_S + 5.0)
    assert wake_at_s(allocator, NOW_S) == NOW_S + 5.0
    lost = with_node(lost_s=NOW_S)
    settings = replace(lost.settings, relist_s=1e6, refill_s=1e6)
    for owed_s, linger_s in ((3.0, 9.0), (9.0, 3.0)):
        waiting = replace(lost, settings=replace(settings, owed_s=owed_s, linger_s=linger_s))
        assert wake_at_s(waiting, NOW_S) == NOW_S + 3.0


@pytest.mark.parametrize(("field", "limit"), [("hanging_s", "hang_s"), ("empty_since_s", "arrival_s"), ("retry_s", "")])
def test_a_pool_is_looked_at_again_when_its_time_is_over(field: str, limit: str) -> None:
    allocator = with_node()
    ref = pool_ref(JOB, A)
    changes: dict[str, Any] = {field: NOW_S if limit else NOW_S + 7.0}
    limits: dict[str, Any] = {limit: 7.0} if limit else {}
    pool = replace(allocator.pools[ref], **changes)
    settings = replace(allocator.settings, relist_s=1e6, **limits)
    assert wake_at_s(replace(allocator, pools={ref: pool}, settings=settings), NOW_S) == NOW_S + 7.0


def test_pools_are_listed_again_by_the_clock_or_when_a_listing_is_not_answered() -> None:
    allocator = with_node()
    settings = allocator.settings
    due = next_listing(allocator)
    assert due is not None and due[0] == NOW_S + settings.relist_s
    asked = next_listing(replace(allocator, listing=replace(allocator.listing, asked_s=NOW_S)))
    assert asked is not None and asked[0] == NOW_S + settings.list_timeout_s
    later = next_listing(replace(allocator, listing=replace(allocator.listing, retry_s=NOW_S + 1e4)))
    assert later is not None and later[0] == NOW_S + 1e4
    unlisted = next_listing(replace(allocator, listing=replace(allocator.listing, unlisted_s=NOW_S + 1.0)))
    assert unlisted is not None and unlisted[0] == NOW_S + 1.0
    assert quiet_from_s(allocator) == allocator.quiet_since_s + settings.quiet_s


def test_a_blocked_cluster_is_tried_again_with_one_node() -> None:
    allocator = with_node()
    block = Block(NOW_S, NOW_S + 5.0, 1, "no image", "")
    blocked = replace(allocator, blocks={US: block}, failing={US: {"us-a-1": NOW_S}})
    assert (room_of(allocator, A), room_of(blocked, A)) == (A.max_nodes, 1)
    assert is_blocked(blocked, US, NOW_S + 4.9) and not is_blocked(blocked, US, NOW_S + 5.0)
    assert not is_blocked(blocked, ClusterName("eu"), NOW_S)
    assert list(start_times(blocked)) == [NOW_S + 5.0, NOW_S + allocator.settings.start_give_back_s]


def test_a_node_without_a_worker_is_given_up_after_its_time() -> None:
    allocator = with_node()
    pool, give_back_s = allocator.pools[pool_ref(JOB, A)], allocator.settings.start_give_back_s
    for after_s, is_lost in ((give_back_s - 0.5, False), (give_back_s, True)):
        after = give_up_unstartable(pool, {"us-a-1": NOW_S}, allocator.settings, NOW_S + after_s)
        assert (after.nodes["us-a-1"].lost_s is not None) is is_lost


def test_a_worker_that_starts_on_a_machine_of_the_same_time_proves_the_cluster() -> None:
    stage = a_full_stage(A, wanted=2)
    stage.cannot_start("us-a-1", "us-a-2")
    assert US in stage.allocator.blocks
    stage.cannot_start(started=("us-a-1",))
    assert US not in stage.allocator.blocks


def test_machines_that_are_given_back_are_shared_and_a_lowered_or_failed_pool_shares_none() -> None:
    stage = a_full_stage(A, wanted=3)
    stage.releases("us-a-3")
    stage.wants(2)
    stage.ticks(stage.allocator.settings.release_s + 1.0)
    [remove] = of(stage.effects, RemoveNodes)
    stale = events.OperationEnded(stage.now_s, remove.ref, remove.operation + 1, Done())
    assert not of(stage.happens(stale), ShareStock)
    assert [share.kind for share in of(stage.ends(remove), ShareStock)] == [A.kind]


def test_the_pools_of_an_ended_job_are_shared_once_they_are_deleted() -> None:
    stage = a_full_stage(A, wanted=1)
    [delete] = of(stage.job_ends(), DeletePool)
    assert not of(stage.ends(delete, Busy("later")), ShareStock)
    stage = a_full_stage(A, wanted=1)
    [delete] = of(stage.job_ends(), DeletePool)
    assert of(stage.ends(delete), ShareStock)


def test_a_pool_that_is_raised_shares_nothing() -> None:
    stage = a_full_stage(A, wanted=1)
    [resize] = of(stage.wants(2), ResizePool)
    assert not of(stage.ends(resize), ShareStock)
    assert not of(a_stage(A).ticks(), ShareStock)


def test_a_node_counts_unless_it_is_lost_noticed_dismissed_or_sidelined() -> None:
    node = Node("n", "u", 0.0)
    assert node.counts and node.is_sound
    others = [replace(node, lost_s=1.0), replace(node, notice_until_s=1.0), replace(node, sidelined_s=1.0)]
    assert not any(each.counts for each in (*others, replace(node, dismissed="idle")))
    assert [each.is_sound for each in others] == [False, False, True]
