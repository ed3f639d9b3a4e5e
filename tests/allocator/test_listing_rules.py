"""What a listing and reports of starts change in an allocator, and what is too old to change it."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.allocator import events
from controlplane.allocator.availability import availability_of, close, is_closed
from controlplane.allocator.learn import learn
from controlplane.allocator.learn_listing import fail_listing, learn_listing
from controlplane.allocator.offers import pool_ref
from controlplane.allocator.starts import block_silent, learn_starts, unblock_heard
from controlplane.allocator.state import Allocator, Block, Doubt, Kind, Pool, Shortage
from controlplane.clouds import outcomes
from controlplane.clouds.interface import ClusterInfo, PoolInfo, PoolRef, PoolStatus, RecentShortage
from messages.labels import JOB_LABEL
from tests.allocator.built import LOST, NOW_S, REF, SOUND, a_pool, an_allocator, operation, some_nodes
from tests.allocator.stage import EU, JOB, US, A, B

NUMBER = 5
"""Of the listing that is answered; it was requested a second ago."""


def an_info(ref: PoolRef = REF, size: int = 2, **changes: Any) -> PoolInfo:
    given = {"kind": A.kind, "status": PoolStatus.RUNNING, "labels": {JOB_LABEL: JOB}, **changes}
    return PoolInfo(ref, size=size, **given)


def waiting(*pools: Pool, **changes: Any) -> Allocator:
    known = an_allocator(*pools)
    asked = replace(known.listing, number=NUMBER, asked_s=NOW_S - 1.0, learned=3)
    return replace(known, **{"listing": asked, **changes})


def listed(allocator: Allocator, *infos: PoolInfo, number: int = NUMBER, ready: bool = True) -> Allocator:
    clusters = (ClusterInfo(US, "us-1", ready, {}, infos),)
    return learn_listing(allocator, events.PoolsListed(NOW_S, number, clusters))


def test_a_listing_is_learned_if_it_is_the_one_that_was_requested() -> None:
    allocator = waiting(a_pool(SOUND, SOUND, SOUND))
    after = listed(allocator, an_info(size=2), ready=False)
    assert (after.listing.learned, after.listing.learned_s, after.listing.asked_s) == (NUMBER, NOW_S - 1.0, None)
    assert (after.pools[REF].target, after.clusters, after.listing.failures) == (2, {US: False}, 0)
    assert listed(allocator, an_info(), number=4) is allocator
    unasked = waiting(a_pool(SOUND), listing=replace(allocator.listing, asked_s=None))
    assert listed(unasked, an_info()) is unasked


@pytest.mark.parametrize(("reported_s", "kept"), [(NOW_S - 1.1, False), (NOW_S - 1.0, False), (NOW_S - 0.9, True)])
def test_a_report_that_came_after_the_request_still_needs_a_listing(reported_s: float, kept: bool) -> None:
    allocator = waiting(a_pool(SOUND))
    allocator = replace(allocator, listing=replace(allocator.listing, unlisted_s=reported_s))
    assert listed(allocator, an_info()).listing.unlisted_s == (reported_s if kept else None)


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({}, 2),
        ({"operation": operation(Kind.RESIZE, 4, 5)}, 4),
        ({"touched": 4}, 2),
        ({"touched": NUMBER}, 4),
        ({"doubt": Doubt(9, "", 4, NOW_S - 1.0)}, 2),
        ({"doubt": Doubt(9, "", NUMBER, NOW_S - 1.0)}, 2),
    ],
)
def test_a_pool_has_the_listed_size_unless_it_changed_since(changes: dict[str, Any], target: int) -> None:
    pool = replace(a_pool(SOUND, target=4), **changes)
    assert listed(waiting(pool), an_info()).pools[REF].target == target


@pytest.mark.parametrize(
    ("changes", "is_there"),
    [
        ({}, False),
        ({"operation": operation(Kind.CREATE, 0, 2)}, True),
        ({"touched": 4}, False),
        ({"touched": NUMBER}, True),
        ({"doubt": Doubt(9, "", 4, NOW_S - 1.0)}, False),
        ({"doubt": Doubt(9, "", 4, NOW_S)}, True),
        ({"doubt": Doubt(9, "", NUMBER, NOW_S - 1.0)}, True),
    ],
)
def test_a_pool_that_is_not_listed_does_not_exist_unless_it_is_too_new(changes: dict[str, Any], is_there: bool) -> None:
    troubles = {"failures": 2, "retry_s": 9.0, "last_error": "busy"}
    pool = replace(a_pool(SOUND, target=4), **{**troubles, **changes})
    after = listed(waiting(pool)).pools[REF]
    assert (after == pool) is is_there
    if not is_there:
        assert after == Pool(REF, A, **troubles)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "changes", "expected"),
    [
        (PoolStatus.RUNNING, {"resizing": True}, {}),
        (PoolStatus.STOPPING, {}, {"stopping"}),
        (PoolStatus.ERROR, {}, {"broken"}),
        (PoolStatus.UPDATING, {}, {"updating"}),
        (PoolStatus.UPDATING, {"resizing": True}, {"resizing"}),
        (PoolStatus.UPDATING, {"hanging_s": 1.0}, set()),
        (PoolStatus.PROVISIONING, {}, set()),
    ],
)
def test_the_status_of_a_pool_tells_what_the_cloud_does_with_it(
    status: PoolStatus, changes: dict[str, Any], expected: set[str]
) -> None:
    after = listed(waiting(replace(a_pool(SOUND, SOUND), **changes)), an_info(status=status)).pools[REF]
    flags = {name for name in ("stopping", "broken", "updating", "resizing") if getattr(after, name)}
    assert flags == set(expected)


def test_a_pool_in_doubt_that_is_being_made_stays_in_doubt() -> None:
    doubt = Doubt(9, "", 4, NOW_S - 1.0)
    pool = replace(a_pool(SOUND), doubt=doubt)
    assert listed(waiting(pool), an_info(status=PoolStatus.PROVISIONING)).pools[REF].doubt == doubt
    assert listed(waiting(pool), an_info()).pools[REF].doubt is None
    assert listed(waiting(a_pool(SOUND)), an_info(status=PoolStatus.PROVISIONING)).pools[REF].doubt is None


def test_an_update_after_a_refusal_is_our_resize_while_nodes_are_missing() -> None:
    updates: dict[str, Any] = {"status": PoolStatus.UPDATING}
    refused = RecentShortage(outcomes.StockedOut("none"), 1.0)
    for size, is_upgrade in ((1, True), (2, False)):
        pool = a_pool(SOUND, target=size)
        assert listed(waiting(pool), an_info(size=size, shortage=refused, **updates)).pools[REF].updating is is_upgrade
        closed = close(waiting(pool), A.kind, Shortage.STOCKOUT, "none", NOW_S)
        assert listed(closed, an_info(size=size, **updates)).pools[REF].updating is is_upgrade


def test_vacant_slots_beyond_the_listed_size_are_gone() -> None:
    pool = a_pool(SOUND, target=4, vacant={"z": 1.0, "x": 1.0, "y": 1.0})
    assert listed(waiting(pool), an_info(size=3)).pools[REF].vacant == {"x": 1.0, "y": 1.0}
    assert listed(waiting(pool), an_info(size=0)).pools[REF].vacant == {}


def test_pools_of_this_job_are_found_and_matched_with_the_offers_of_the_fleet() -> None:
    ref = pool_ref(JOB, B)
    found = listed(waiting(a_pool(SOUND)), an_info(), an_info(ref, 3, kind=B.kind)).pools[ref]
    assert (found.offer, found.adopted, found.target, found.exists) == (B, True, 3, True)
    odd = PoolRef(US, "odd")
    unknown = listed(waiting(a_pool(SOUND)), an_info(), an_info(odd, 3, kind=B.kind)).pools[odd].offer
    assert (unknown.pool, unknown.max_nodes, unknown.kind, unknown.zone) == ("odd", 3, B.kind, "us-b")
    plain = listed(waiting(a_pool(SOUND)), an_info(odd, kind=B.kind._replace(accelerator="", accelerators=0)))
    assert plain.pools[odd].offer.accelerator is None
    other = listed(waiting(a_pool(SOUND)), an_info(odd, labels={JOB_LABEL: "other"}))
    assert odd not in other.pools


@pytest.mark.parametrize(("deleted", "is_found"), [(4, True), (NUMBER, False), (6, False)])
def test_a_deleted_pool_is_not_found_in_a_listing_from_before(deleted: int, is_found: bool) -> None:
    after = listed(waiting(a_pool(SOUND), pools={}, deleted={REF: deleted}), an_info())
    assert (REF in after.pools) is is_found
    assert after.deleted == ({} if is_found else {REF: deleted})


@pytest.mark.parametrize(
    ("age_s", "changes", "closes"),
    [
        (300.0, {}, True),
        (300.1, {}, False),
        (1.0, {"sighted_s": None}, False),
        (1.0, {"nodes": some_nodes(SOUND, SOUND)}, False),
    ],
)
def test_a_recent_refusal_in_a_listing_closes_the_zone(age_s: float, changes: dict[str, Any], closes: bool) -> None:
    shortage = RecentShortage(outcomes.StockedOut("none"), age_s)
    pool = replace(a_pool(SOUND, target=2, granted=True, sighted_s=1.0), **changes)
    after = listed(waiting(pool), an_info(shortage=shortage))
    assert (is_closed(after, A.kind, NOW_S), after.pools[REF].granted) == (closes, not closes)


@pytest.mark.parametrize(("refused_s", "closes"), [(NOW_S - 101.0, True), (NOW_S - 100.0, False)])
def test_a_refusal_that_is_known_does_not_close_the_zone_again(refused_s: float, closes: bool) -> None:
    allocator = close(waiting(a_pool(SOUND, target=2, sighted_s=1.0)), A.kind, Shortage.STOCKOUT, "none", refused_s)
    assert not is_closed(allocator, A.kind, NOW_S)
    after = listed(allocator, an_info(shortage=RecentShortage(outcomes.StockedOut("none"), 100.0)))
    assert is_closed(after, A.kind, NOW_S) is closes
    open_s = availability_of(close(allocator, A.kind, Shortage.QUOTA, "quota", NOW_S), A.kind)
    still = replace(allocator, availability={A.kind: open_s})
    fresh = RecentShortage(outcomes.StockedOut("none"), 1.0)
    assert availability_of(listed(still, an_info(shortage=fresh)), A.kind) == open_s


@pytest.mark.parametrize(("failures", "pause_s"), [(0, 1.0), (1, 2.0), (9, 30.0)])
def test_a_failed_listing_is_tried_again_later_each_time(failures: int, pause_s: float) -> None:
    allocator = waiting(a_pool(SOUND))
    allocator = replace(allocator, listing=replace(allocator.listing, failures=failures))
    refused = fail_listing(allocator, events.ListingFailed(NOW_S, NUMBER, outcomes.Refused("denied", "grant"))).listing
    assert (refused.failures, refused.retry_s, refused.asked_s) == (failures + 1, NOW_S + pause_s, None)
    assert (refused.error, refused.hint) == ("denied", "grant")
    silent = fail_listing(allocator, events.ListingFailed(NOW_S, NUMBER, outcomes.Unreachable("silent"))).listing
    assert (silent.error, silent.hint) == ("silent", "")
    old = events.ListingFailed(NOW_S, NUMBER - 1, outcomes.Unreachable("silent"))
    assert fail_listing(allocator, old) is allocator
    unasked = replace(allocator, listing=replace(allocator.listing, asked_s=None))
    assert fail_listing(unasked, replace(old, listing=NUMBER)) is unasked


# Starts of workers


def starts(allocator: Allocator, *failing: str, started: tuple[str, ...] = (), at_s: float = NOW_S) -> Allocator:
    named = tuple((name, 20.0) for name in failing)
    return learn_starts(allocator, events.StartsSeen(at_s, US, named, frozenset(started), "no image", "pull it"))


def a_cluster_of(*first_seen_s: float, **changes: Any) -> Allocator:
    nodes = some_nodes(*({"was_ready": True} for _ in first_seen_s))
    seen = {
        name: replace(node, first_seen_s=at_s) for (name, node), at_s in zip(nodes.items(), first_seen_s, strict=True)
    }
    return an_allocator(replace(a_pool(target=len(nodes)), nodes=seen), **changes)


def test_a_cluster_is_blocked_by_workers_that_cannot_start_and_longer_by_each_new_try() -> None:
    allocator = a_cluster_of(1.0, 2.0)
    first = starts(allocator, "n1", "elsewhere")
    assert first.failing == {US: {"n1": NOW_S - 20.0}}
    assert first.blocks == {US: Block(NOW_S, NOW_S + 600.0, 1, "no image", "pull it", frozenset({"n1"}))}
    longer = starts(first, "n1", "n2", at_s=NOW_S + 50)
    block = Block(NOW_S, NOW_S + 650.0, 1, "no image", "pull it", frozenset({"n1", "n2"}))
    assert longer.blocks == {US: block}
    pause = starts(longer, at_s=NOW_S + 100)
    assert (pause.blocks, pause.failing) == ({US: block}, {US: {}})
    again = starts(pause, "n2", at_s=NOW_S + 700)
    assert again.blocks[US] == Block(NOW_S + 700, NOW_S + 1900.0, 2, "no image", "pull it", frozenset({"n2"}))
    assert starts(allocator, "elsewhere").blocks == {}


@pytest.mark.parametrize(
    ("first_seen_s", "started", "is_blocked"),
    [((5.0, 5.0), "n2", False), ((5.0, 4.0), "n2", True), ((5.0, 6.0), "n2", False), ((5.0, 5.0), "x", True)],
)
def test_a_cluster_where_a_worker_starts_on_a_node_as_new_is_not_the_cause(
    first_seen_s: tuple[float, float], started: str, is_blocked: bool
) -> None:
    allocator = starts(a_cluster_of(*first_seen_s), "n1", started=(started,))
    assert (US in allocator.blocks) is is_blocked


@pytest.mark.parametrize(
    ("first_seen_s", "nodes", "is_open"),
    [(NOW_S, (), True), (NOW_S - 0.1, (), False), (NOW_S - 0.1, ("n1",), True)],
)
def test_a_worker_that_starts_on_a_node_of_the_block_or_a_later_one_ends_it(
    first_seen_s: float, nodes: tuple[str, ...], is_open: bool
) -> None:
    blocked = a_cluster_of(first_seen_s, blocks={US: Block(NOW_S, NOW_S + 9, 1, "no image", nodes=frozenset(nodes))})
    assert (US not in starts(blocked, started=("n1",)).blocks) is is_open


def test_a_cluster_without_a_controller_is_blocked_until_it_reports() -> None:
    allocator = a_cluster_of(1.0)
    event = events.ControllerFailed(NOW_S, US, "no image", "pull it")
    block = Block(NOW_S, NOW_S + 120.0, 1, "no image", "pull it", of_controller=True)
    first = block_silent(allocator, event)
    assert first.blocks == {US: block}
    second = block_silent(first, replace(event, at_s=NOW_S + 30))
    assert second.blocks == {US: replace(block, until_s=NOW_S + 150.0)}
    assert unblock_heard(second, US).blocks == {} and unblock_heard(second, EU) is second
    of_workers = replace(allocator, blocks={US: replace(block, of_controller=False, since_s=1.0)})
    assert unblock_heard(of_workers, US) is of_workers
    assert block_silent(of_workers, event).blocks == {US: block}


def test_a_node_is_given_back_with_the_reason_when_no_worker_could_start_on_it() -> None:
    allocator = replace(a_cluster_of(1.0, 2.0), failing={US: {"n1": NOW_S - 300.0, "n2": NOW_S - 299.9}})
    nodes = learn(allocator, events.Ticked(NOW_S)).pools[REF].nodes
    assert (nodes["n1"].lost_s, nodes["n2"].lost_s) == (NOW_S, None)
    assert nodes["n1"].useless == "no worker could start on it for 300 s"
    lost = an_allocator(a_pool(LOST), failing={US: {"n1": 0.0}})
    assert learn(lost, events.Ticked(NOW_S)).pools[REF].nodes["n1"].lost_s == 1.0
