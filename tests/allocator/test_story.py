"""Events for people: which changes of an allocator are announced, once each, and with which facts."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.allocator.effects import (
    AllocatorEffect,
    Announce,
    CreatePool,
    DeletePool,
    ListPools,
    RemoveNodes,
    ResizePool,
    ShareStock,
)
from controlplane.allocator.offers import pool_plan, pool_ref
from controlplane.allocator.state import (
    Allocator,
    Availability,
    Block,
    Closure,
    Kind,
    Node,
    Operation,
    Plans,
    Pool,
    Shortage,
)
from controlplane.allocator.story import announce
from controlplane.planning.plan import Alternative, Change, Plan
from controlplane.planning.scoring import score
from controlplane.planning.tuning import Tuning
from messages.events import LOSER_FIELD
from tests.allocator.planned_stage import IOWA, a_running_stage
from tests.allocator.stage import JOB, US, A, B, a_full_stage
from tests.planning.builders import IOWA_A, a_choice, a_market, a_small_profile, an_option, gpus_of

REF = pool_ref(JOB, A)
PLACE: dict[str, Any] = {"cluster": "us", "zone": "us-a"}


def an_allocator() -> Allocator:
    """All three nodes are there."""
    return a_full_stage(A, B, wanted=3).allocator


def with_pool(allocator: Allocator, **changes: Any) -> Allocator:
    return replace(allocator, pools={**allocator.pools, REF: replace(allocator.pools[REF], **changes)})


def with_node(allocator: Allocator, name: str = "us-a-1", **changes: Any) -> Allocator:
    nodes = allocator.pools[REF].nodes
    return with_pool(allocator, nodes={**nodes, name: replace(nodes[name], **changes)})


def without_node(allocator: Allocator, name: str = "us-a-1", **changes: Any) -> Allocator:
    nodes = {other: node for other, node in allocator.pools[REF].nodes.items() if other != name}
    return with_pool(allocator, nodes=nodes, **changes)


def only(before: Allocator, after: Allocator, *effects: AllocatorEffect) -> Announce:
    (announced,) = announce(before, after, effects)
    return announced


def kinds(before: Allocator, after: Allocator, *effects: AllocatorEffect) -> list[str]:
    return [each.kind for each in announce(before, after, effects)]


def test_a_found_pool_is_announced_once() -> None:
    after = an_allocator()
    pool = Pool(pool_ref(JOB, B), B, target=2, exists=True, adopted=True)
    found = replace(after, pools={**after.pools, pool.ref: pool})
    announced = only(after, found)
    assert (announced.kind, announced.why) == ("pool_found", "it carries the job's label")
    assert announced.text == f"found pool {pool.ref.pool} of 2 nodes in us-b"
    assert announced.fields == {"cluster": "us", "zone": "us-b"}
    assert announce(found, found, ()) == []
    ours = replace(found, pools={**after.pools, pool.ref: replace(pool, adopted=False)})
    assert announce(after, ours, ()) == []


@pytest.mark.parametrize(
    ("changes", "kind", "text", "why"),
    [
        ({"lost_s": 1.0}, "node_lost", "was lost", ""),
        ({"lost_s": 1.0, "useless": "no worker"}, "node_given_back", "will be removed", "no worker"),
        ({"sidelined_s": 1.0}, "node_sidelined", "is not ready",
         "another node replaces it; it stays for a while, because it may recover or be repaired"),
        ({"sidelined_s": 1.0, "cordoned": True}, "node_sidelined", "is being drained",
         "it is cordoned, for an upgrade or a repair; another node replaces it meanwhile"),
        ({"notice_until_s": 1.0}, "node_noticed", "will be preempted", ""),
        ({"dismissed": "idle"}, "node_underused", "will be removed", "idle"),
    ],
)  # fmt: skip
def test_the_fate_of_a_node_is_announced_once(changes: dict[str, Any], kind: str, text: str, why: str) -> None:
    before = an_allocator()
    after = with_node(before, **changes)
    found = [each for each in announce(before, after, ()) if each.kind != "capacity_reached"]
    assert [(each.kind, each.text, each.why) for each in found] == [(kind, f"node us-a-1 in us-a {text}", why)]
    assert found[0].fields == {**PLACE, "node": "us-a-1"}
    assert announce(after, after, ()) == []


def test_a_node_that_is_back_counts_again_and_is_announced_unless_it_is_lost() -> None:
    full = an_allocator()
    aside = with_node(full, sidelined_s=1.0)
    back, reached = announce(aside, full, ())
    assert (back.kind, back.text) == ("node_back", "node us-a-1 in us-a is ready again")
    assert back.why == "it counts again; surplus nodes are released"
    assert (reached.kind, reached.text, reached.fields) == (
        "capacity_reached", "all 3 nodes have arrived", {"nodes": 3},
    )  # fmt: skip
    assert kinds(aside, with_node(full, notice_until_s=1.0)) == ["node_noticed"]
    assert kinds(aside, with_node(full, lost_s=1.0)) == ["node_lost"]


def test_a_node_that_is_gone_was_lost_unless_it_was_removed() -> None:
    before = an_allocator()
    gone = without_node(before)
    assert kinds(before, gone) == ["node_lost"] and only(before, gone).text == "node us-a-1 in us-a is gone"
    assert kinds(before, with_node(before, uid="another")) == ["node_lost"]
    assert announce(with_node(before, lost_s=1.0), gone, ()) == []
    assert announce(before, without_node(before, removed=frozenset({("us-a-1", "uid-1")})), ()) == []
    names = frozenset({"us-a-1"})
    for vacant, expected in ((frozenset(), []), (names, ["node_lost"])):
        removing = Operation(1, Kind.REMOVE, 3, 2, 0.0, names, vacant)
        assert kinds(before, without_node(before, operation=removing)) == expected
    new = with_pool(before, nodes={**before.pools[REF].nodes, "us-a-9": Node("us-a-9", "uid-9", 0.0)})
    assert announce(before, new, ()) == []


@pytest.mark.parametrize(
    ("shortage", "kind", "hinted"),
    [
        (Shortage.STOCKOUT, "zone_stocked_out", ""),
        (Shortage.QUOTA, "quota_exceeded", " (ask for more)"),
        (Shortage.REFUSED, "cloud_refused", " (ask for more)"),
    ],
)
def test_a_shortage_is_announced_each_time_that_the_cloud_refuses(shortage: Shortage, kind: str, hinted: str) -> None:
    before = an_allocator()
    closure = Closure(shortage, 1.0, 31.0, 1, "refused", "ask for more")
    after = replace(before, availability={A.kind: Availability((closure,))})
    announced = only(before, after)
    assert (announced.kind, announced.why) == (kind, "refused")
    assert announced.text == f"n1-standard-8 in us-a is not available{hinted}"
    assert announced.fields == {"zone": "us-a", "machine_type": "n1-standard-8"}
    assert announce(after, after, ()) == []
    later = replace(before, availability={A.kind: Availability((replace(closure, at_s=50.0),))})
    assert kinds(after, later) == [kind]
    plain = replace(before, availability={A.kind: Availability((replace(closure, hint=""),))})
    assert only(before, plain).text == "n1-standard-8 in us-a is not available"


def test_a_blocked_cluster_is_announced_for_each_try_and_when_workers_start_again() -> None:
    before = an_allocator()
    block = Block(1.0, 601.0, 1, "no image.", "grant a role")
    after = replace(before, blocks={US: block})
    announced = only(before, after)
    assert (announced.kind, announced.why, announced.fields) == (
        "starts_failed", "no image; try: grant a role", {"cluster": "us"},
    )  # fmt: skip
    assert announced.text == "workers cannot start in cluster us; no nodes are requested there for now"
    for changes, expected in (
        ({"failures": 2}, ["starts_failed"]),
        ({"hint": "pull it"}, ["starts_failed"]),
        ({"until_s": 700.0}, []),
    ):
        changed = replace(before, blocks={US: replace(block, **changes)})
        assert kinds(after, changed) == expected
    again = only(after, before)
    assert (again.kind, again.text, again.fields) == (
        "starts_work", "workers in cluster us start again", {"cluster": "us"},
    )  # fmt: skip


def raising(allocator: Allocator, target: int, number: int = 7, **changes: Any) -> Allocator:
    before = allocator.pools[REF].target
    kind = Kind.REMOVE if changes else Kind.RESIZE
    return with_pool(allocator, operation=Operation(number, kind, before, target, 0.0, **changes))


def test_requests_are_announced_with_their_size_and_reason() -> None:
    before = an_allocator()
    create = CreatePool(7, US, pool_plan(JOB, A, 2), "more")
    made = only(before, before, create)
    assert (made.kind, made.why, made.fields) == ("pool_created", "more", {**PLACE, "size": 2})
    assert made.text.startswith("requesting a pool of 2 nodes in ")
    for target, kind, word in ((4, "pool_raised", "raising"), (2, "pool_lowered", "lowering")):
        found = only(before, raising(before, target), ResizePool(7, REF, target, "why"))
        assert (found.kind, found.why, found.fields) == (kind, "why", {**PLACE, "size": target})
        assert found.text == f"{word} pool {REF.pool} in us-a to {target} nodes"
    assert kinds(before, raising(before, 4, number=8), ResizePool(7, REF, 4, "why")) == ["pool_lowered"]
    assert kinds(before, before, ResizePool(7, REF, 4, "why")) == ["pool_lowered"]
    delete = only(before, before, DeletePool(7, REF, "the end"))
    assert (delete.kind, delete.text, delete.why) == ("pool_deleted", f"deleting pool {REF.pool}", "the end")
    assert delete.fields == PLACE
    assert announce(before, before, (ListPools(1, "to see"), ShareStock(A.kind))) == []


def test_removed_nodes_are_named_and_removed_slots_are_a_lower_size() -> None:
    before = an_allocator()
    names = frozenset({"us-a-1", "us-a-2"})
    remove = RemoveNodes(7, REF, tuple(sorted(names)), "idle")
    removed = only(before, raising(before, 1, nodes=names), remove)
    assert (removed.kind, removed.text, removed.why) == ("nodes_removed", "removing us-a-1, us-a-2", "idle")
    assert removed.fields == PLACE
    assert kinds(before, before, remove) == ["nodes_removed"]
    slots = only(before, raising(before, 1, nodes=names, vacant=names), remove)
    assert (slots.kind, slots.fields, slots.why) == ("pool_lowered", {**PLACE, "size": 1}, "idle")


def test_a_repeated_request_is_announced_only_the_first_time() -> None:
    before = an_allocator()
    tried = with_pool(before, failures=1)
    resize = ResizePool(7, REF, 4, "why")
    assert announce(tried, raising(tried, 4), (resize,)) == []
    assert kinds(tried, tried, DeletePool(7, REF, "the end")) == ["pool_deleted"]
    busy = raising(tried, 5, number=6)
    assert kinds(busy, raising(tried, 4), resize) == ["pool_raised"]
    new = replace(before, pools={})
    assert kinds(new, before, CreatePool(7, US, pool_plan(JOB, A, 2), "more"))[-1] == "capacity_reached"


def test_the_last_node_and_the_end_are_announced_once() -> None:
    full = an_allocator()
    one_less = without_node(full)
    assert kinds(one_less, full) == ["capacity_reached"]
    assert announce(full, full, ()) == []
    alone = without_node(without_node(replace(full, wanted=1)), "us-a-2")
    none = without_node(alone, "us-a-3")
    arrived = only(none, alone)
    assert (arrived.kind, arrived.text, arrived.fields) == ("capacity_reached", "the node has arrived", {"nodes": 1})
    assert announce(replace(none, wanted=1), replace(none, wanted=0), ()) == []
    assert kinds(replace(full, wanted=2), full) == ["capacity_reached"]
    assert announce(replace(one_less, ended="done"), replace(full, ended="done"), ()) == []
    ended = replace(full, ended="done", finished=True)
    over = only(replace(ended, finished=False), ended)
    assert (over.kind, over.text, over.why) == ("capacity_gone", "all pools of the job are gone", "done")
    assert announce(ended, ended, ()) == []


def test_trouble_is_announced_when_it_begins_or_changes() -> None:
    before = an_allocator()
    failing = replace(before, listing=replace(before.listing, error="denied"))
    announced = only(before, failing)
    assert (announced.kind, announced.text, announced.why) == (
        "listing_failed", "cannot list the cloud's pools", "denied",
    )  # fmt: skip
    hinted = replace(before, listing=replace(before.listing, error="denied", hint="grant"))
    assert only(before, hinted).text == "cannot list the cloud's pools (grant)"
    assert announce(failing, failing, ()) == announce(failing, before, ()) == []
    other = replace(before, listing=replace(before.listing, error="timeout"))
    assert kinds(failing, other) == ["listing_failed"]
    first = with_pool(before, failures=1, last_error="busy")
    trouble = only(before, first)
    assert (trouble.kind, trouble.why, trouble.fields) == ("pool_trouble", "busy", PLACE)
    assert trouble.text == f"pool {REF.pool} could not be changed"
    assert announce(first, with_pool(before, failures=2, last_error="busy"), ()) == []
    assert announce(before, with_pool(before, failures=1), ()) == []
    assert announce(before, with_pool(before, last_error="busy"), ()) == []


def a_plan(**changes: Any) -> Plan:
    nodes = {a_choice(): 2}
    found = score(a_small_profile(), a_market(), nodes, Tuning())
    given: dict[str, Any] = {"placement": nodes, "ask": nodes, "change": Change.GROW, "score": found, "why": "cheap"}
    return Plan(**{**given, **changes})


def planned(plan: Plan | None, *, is_reported: bool = True) -> Allocator:
    allocator = a_running_stage(IOWA).allocator
    reported = (plan.placement, plan.change) if plan is not None and is_reported else None
    return replace(allocator, plans=Plans(plan=plan, reported=reported))


def test_a_followed_plan_is_announced_with_its_figures_and_once() -> None:
    none, plan = planned(None), a_plan()
    announced = only(none, planned(plan))
    assert (announced.kind, announced.why) == ("planned", "cheap")
    assert announced.text.startswith("aiming at 2 ") and announced.text.endswith(" (grow)")
    assert plan.score is not None
    estimate = plan.score.estimate
    assert announced.fields["change"] == "grow" and announced.fields["workers"] == 2
    assert announced.fields["steps_per_s"] == round(estimate.steps_per_s, 6)
    assert {"usd_per_hour", "usd_per_1000_steps"} < announced.fields.keys()
    assert announce(planned(plan), planned(a_plan(why="still")), ()) == []
    assert kinds(planned(plan), planned(a_plan(change=Change.KEEP))) == ["planned"]
    for before, after in ((none, planned(plan, is_reported=False)), (planned(plan), none)):
        assert "planned" not in kinds(before, after)


def test_a_plan_names_what_limits_it_and_what_it_was_compared_with() -> None:
    none, plan = planned(None), a_plan()
    assert plan.score is not None
    limited = only(none, planned(a_plan(limited_by=(gpus_of("us-central1"),))))
    assert limited.why.startswith("cheap; ")
    waits = only(none, planned(a_plan(limited_by=(gpus_of("us-central1"),), change=Change.WAIT)))
    assert waits.why == "cheap"
    others = (Alternative({a_choice(): 1}, plan.score, "slower"), Alternative({a_choice(): 3}, plan.score, "dearer"))
    fields = only(none, planned(a_plan(alternatives=others))).fields
    losers = {name: text for name, text in fields.items() if name.startswith(LOSER_FIELD)}
    assert [name[-1] for name in losers] == ["1", "2"]
    assert [str(text).rsplit(": ")[-1] for text in losers.values()] == ["slower", "dearer"]
    empty = only(none, planned(a_plan(placement={}, score=None)))
    assert empty.text == "aiming at nothing (grow)" and empty.fields == {"change": "grow", "workers": 0}


def test_a_plan_of_assumed_speed_names_only_the_price_of_its_machines() -> None:
    plan = a_plan()
    assert plan.score is not None
    nodes = {a_choice(IOWA_A): 2}
    assumed = score(a_small_profile(is_assumed=True), a_market(an_option()), nodes, Tuning())
    assert assumed is not None and assumed.is_assumed
    fields = only(planned(None), planned(a_plan(score=assumed))).fields
    assert fields.keys() == {"change", "workers", "usd_per_hour"}
