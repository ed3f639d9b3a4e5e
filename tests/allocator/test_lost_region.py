"""A silent region: all its nodes are lost together while it is away."""

from controlplane.allocator.effects import CreatePool, RemoveNodes, ResizePool
from controlplane.clouds.outcomes import Unreachable
from tests.allocator.stage import EU, US, A, B, C, a_full_stage, asked, held_by, of


def test_all_nodes_of_a_lost_region_are_asked_for_elsewhere_at_once() -> None:
    stage = a_full_stage(C, A, wanted=3)
    lost = stage.loses_cluster(EU)
    assert asked(lost) == [("remove", "eu-c", "eu-c-1", "eu-c-2", "eu-c-3"), ("create", "us-a", "3")]


def test_nothing_is_asked_for_in_another_zone_of_a_lost_region() -> None:
    stage = a_full_stage(A, B, C, wanted=3)
    lost = stage.loses_cluster(US)
    assert asked(lost) == [("remove", "us-a", "us-a-1", "us-a-2", "us-a-3"), ("create", "eu-c", "3")]


def test_a_region_that_is_listed_and_no_longer_called_lost_is_asked_again() -> None:
    stage = a_full_stage(C, wanted=1)
    lost = stage.loses_cluster(EU)
    assert asked(lost) == [("remove", "eu-c", "eu-c-1")]
    stage.ends(of(lost, RemoveNodes)[0])
    assert asked(stage.lists()) == []
    stage.wants(1)
    stage.ticks(stage.allocator.settings.relist_s)
    assert asked(stage.lists()) == [("resize", "eu-c", "1")]


def test_being_told_again_that_a_region_is_lost_changes_nothing() -> None:
    stage = a_full_stage(C, A, wanted=3)
    stage.loses_cluster(EU)
    assert asked(stage.loses_cluster(EU)) == []


def test_the_one_that_was_on_the_way_to_a_lost_region_is_not_waited_for_for_ever() -> None:
    """The operation cannot be cancelled, because the region does not answer."""
    stage = a_full_stage(C, A, wanted=1)
    stage.ends(of(stage.wants(2), ResizePool)[0])
    lost = stage.loses_cluster(EU)
    assert asked(lost) == [("remove", "eu-c", "eu-c-1"), ("create", "us-a", "1")]
    stage.ends(of(lost, CreatePool)[0])
    stage.ends(of(lost, RemoveNodes)[0], Unreachable("the region does not answer"))
    stage.fills(A)
    raised: list[tuple[str, ...]] = []
    while stage.now_s < 100.0 + 2 * stage.allocator.settings.hang_s and not raised:
        stage.now_s += 5.0
        reported = [*stage.sees(US), *stage.loses_cluster(EU)]
        for effect in of(reported, RemoveNodes):
            stage.ends(effect, Unreachable("the region does not answer"))
        raised = [each for each in asked(reported) if each[:2] == ("resize", "us-a")]
    assert raised == [("resize", "us-a", "2")]


def test_a_lost_region_that_cannot_be_told_is_told_when_it_is_back() -> None:
    stage = a_full_stage(C, A, wanted=3)
    lost = stage.loses_cluster(EU)
    stage.ends(of(lost, CreatePool)[0])
    stage.fills(A)
    stage.sees(US)
    stage.ticks(5.0)
    stage.ends(of(lost, RemoveNodes)[0], Unreachable("the region does not answer"))
    stage.ticks(2.0)
    assert asked(stage.lists()) == [("remove", "eu-c", "eu-c-1", "eu-c-2", "eu-c-3")]
    assert held_by(stage)["us-a"] == 3
