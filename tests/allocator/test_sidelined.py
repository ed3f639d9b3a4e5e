"""Nodes that are replaced but kept: not ready, or drained by the cloud for an upgrade or a repair."""

from controlplane.allocator.counting import at_most
from controlplane.allocator.effects import Announce, CreatePool, DeletePool, ResizePool
from controlplane.allocator.offers import Offer
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import new_allocator
from controlplane.clouds.outcomes import Busy, PartlyDone, StockedOut
from tests.allocator.stage import JOB, A, B, Stage, a_full_stage, an_offer, asked, held_by, of

PATIENT = AllocatorSettings(relist_s=100_000.0)


def with_a_node_that_is_not_ready(*offers: Offer) -> Stage:
    stage = a_full_stage(*(offers or (A, B)), settings=PATIENT)
    stage.unready.add("us-a-1")
    stage.sees()
    return stage


def replaced(stage: Stage) -> None:
    """A node of the next pool replaces it."""
    [create] = of(stage.ticks(10.0), CreatePool)
    stage.ends(create)
    stage.fills(B)
    stage.sees()


def test_a_node_that_stays_unready_is_replaced_at_once_and_kept() -> None:
    stage = with_a_node_that_is_not_ready()
    effects = stage.ticks(10.0)
    assert asked(effects) == [("create", "us-b", "1")]
    [said] = [each for each in of(effects, Announce) if each.kind == "node_sidelined"]
    assert (said.fields["node"], said.fields["zone"], "ready" in said.text) == ("us-a-1", "us-a", True)
    assert held_by(stage) == {"us-a": 2}


def test_a_new_leader_keeps_the_machine_of_a_node_that_is_not_ready_too() -> None:
    stage = with_a_node_that_is_not_ready()
    replaced(stage)
    stage.were_ready.add("us-a-1")
    stage.allocator = new_allocator(JOB, (A, B), wanted=3, at_s=stage.now_s, settings=PATIENT)
    stage.ticks()
    stage.lists()
    assert asked([*stage.sees(), *stage.releases("us-a-1")]) == []
    effects = stage.ticks(10.0)
    assert "node_sidelined" in [each.kind for each in of(effects, Announce)]
    assert asked(effects) == []


def test_a_new_leader_replaces_a_node_that_just_became_unready() -> None:
    stage = with_a_node_that_is_not_ready()
    stage.were_ready.add("us-a-1")
    stage.allocator = new_allocator(JOB, (A, B), wanted=3, at_s=stage.now_s, settings=PATIENT)
    stage.ticks()
    stage.lists()
    stage.sees()
    assert asked(stage.ticks(10.0)) == [("create", "us-b", "1")]


def test_it_is_removed_when_it_has_not_come_back_for_long() -> None:
    stage = with_a_node_that_is_not_ready()
    replaced(stage)
    stage.now_s += 895.0
    assert asked(stage.sees()) == []
    stage.now_s += 10.0
    assert asked(stage.sees()) == [("remove", "us-a", "us-a-1")]


def test_a_node_that_is_gone_for_certain_is_given_up_at_once() -> None:
    stage = with_a_node_that_is_not_ready()
    replaced(stage)
    stage.takes("us-a-1")
    assert asked(stage.sees()) == [("remove", "us-a", "us-a-1")]


def test_a_node_that_is_ready_again_counts_again_and_one_that_nobody_uses_goes() -> None:
    stage = with_a_node_that_is_not_ready()
    replaced(stage)
    stage.unready.clear()
    effects = stage.sees()
    assert asked(effects) == []
    assert [each.kind for each in of(effects, Announce)] == ["node_back"]
    assert held_by(stage) == {"us-a": 3, "us-b": 1}
    assert asked(stage.releases("us-b-1")) == [("remove", "us-b", "us-b-1")]


def test_a_repaired_node_is_another_machine_and_counts() -> None:
    stage = with_a_node_that_is_not_ready()
    replaced(stage)
    stage.renews("us-a-1")
    stage.unready.clear()
    stage.sees()
    assert held_by(stage) == {"us-a": 3, "us-b": 1}


def test_the_only_pool_is_raised_beside_a_node_that_is_not_ready() -> None:
    stage = with_a_node_that_is_not_ready(A)
    [resize] = of(stage.ticks(10.0), ResizePool)
    assert resize.size == 4
    stage.ends(resize)
    assert at_most(stage.pool(A)) == 3
    assert at_most(stage.pool(A), with_noticed=True) == at_most(stage.pool(A), with_sidelined=True) == 4


def test_a_pool_never_gets_more_nodes_than_it_may_have() -> None:
    full = an_offer("us-a", at_most=3)
    assert asked(with_a_node_that_is_not_ready(full).ticks(10.0), (full,)) == []
    assert asked(with_a_node_that_is_not_ready(full, B).ticks(10.0), (full, B)) == [("create", "us-b", "1")]


def test_a_node_that_is_being_drained_is_replaced_and_the_cloud_is_asked_what_it_does() -> None:
    stage = a_full_stage(A, B, settings=PATIENT)
    stage.cordoned.add("us-a-1")
    effects = stage.sees()
    assert asked(effects) == [("create", "us-b", "1"), ("list",)]
    [said] = [each for each in of(effects, Announce) if each.kind == "node_sidelined"]
    assert (said.fields["node"], said.fields["zone"], "drained" in said.text) == ("us-a-1", "us-a", True)


def test_a_node_that_is_uncordoned_counts_again() -> None:
    stage = a_full_stage(A, settings=PATIENT)
    stage.cordoned.add("us-a-1")
    stage.sees()
    stage.cordoned.clear()
    stage.sees()
    assert held_by(stage) == {"us-a": 3}


def in_an_upgrade_with_surge() -> Stage:
    """A fourth node has come, it is not used, and the group's target is four."""
    stage = a_full_stage(A, settings=AllocatorSettings(relist_s=1.0))
    stage.updates(A, surge=1)
    stage.fills(A)
    stage.sees()
    stage.ticks(2.0)
    stage.lists()
    return stage


def test_a_surge_node_is_no_node_too_many_during_the_upgrade() -> None:
    stage = in_an_upgrade_with_surge()
    assert stage.pool(A).updating and stage.pool(A).target == 4
    assert asked(stage.releases("us-a-4")) == []
    stage.cordoned.add("us-a-1")
    assert "remove" not in {word for word, *_ in asked(stage.sees())}
    assert at_most(stage.pool(A)) == 3


def test_a_surge_node_that_shows_before_any_listing_tells_of_the_upgrade_changes_nothing() -> None:
    stage = a_full_stage(A, settings=PATIENT)
    stage.updates(A, surge=1)
    stage.fills(A)
    assert asked(stage.sees()) == []
    assert asked(stage.releases("us-a-4")) == []


def test_after_the_upgrade_everything_is_as_before() -> None:
    stage = in_an_upgrade_with_surge()
    for node in ("us-a-1", "us-a-2", "us-a-3"):
        stage.cordoned = {node}
        stage.sees()
        stage.cordoned.clear()
        stage.renews(node)
        stage.sees()
    stage.takes("us-a-4")
    stage.is_done(A, surge=1)
    assert "remove" not in {word for word, *_ in asked(stage.sees())}
    stage.ticks(11.0)
    assert asked(stage.lists()) == [("list",)], "nodes were cordoned since the last one was asked for"
    assert asked(stage.lists()) == []
    assert (held_by(stage), stage.pool(A).target, stage.pool(A).updating) == ({"us-a": 3}, 3, False)


def test_a_job_that_ends_during_an_upgrade_asks_until_its_pool_can_be_deleted() -> None:
    stage = in_an_upgrade_with_surge()
    [delete] = of(stage.job_ends("succeeded"), DeletePool)
    stage.ends(delete, Busy("an upgrade is under way"))
    assert of(stage.ticks(2.0), DeletePool)


def test_a_resize_that_waits_for_machines_is_no_upgrade() -> None:
    stage = a_full_stage(A, B, settings=AllocatorSettings(relist_s=1.0))
    [resize] = of(stage.wants(4), ResizePool)
    stage.does(resize)
    stage.updates(A)
    assert asked(stage.ends(resize, StockedOut("no machines")))[-1:] == [("create", "us-b", "1")]
    stage.ticks(2.0)
    stage.lists()
    assert not stage.pool(A).updating


def test_nodes_are_removed_while_the_cloud_still_works_on_a_resize_that_was_partly_refused() -> None:
    stage = a_full_stage(A, B, settings=AllocatorSettings(relist_s=1.0))
    [resize] = of(stage.wants(4), ResizePool)
    stage.updates(A)
    stage.ends(resize, PartlyDone(3, StockedOut("no machines")))
    stage.ticks(2.0)
    stage.lists()
    stage.wants(3)
    assert asked(stage.releases("us-a-3")) == [("remove", "us-a", "us-a-3")]


def test_an_upgrade_after_such_a_resize_is_an_upgrade() -> None:
    stage = a_full_stage(A, B, settings=AllocatorSettings(relist_s=1.0))
    [resize] = of(stage.wants(4), ResizePool)
    stage.ends(resize, PartlyDone(3, StockedOut("no machines")))
    for update in (stage.is_done, stage.updates):
        update(A)
        stage.ticks(100.0)
        stage.lists()
    assert stage.pool(A).updating
