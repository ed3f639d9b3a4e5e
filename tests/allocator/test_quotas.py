"""Quotas of any kind: checked before requests, shared by offers, and learned from refusals."""

from controlplane.allocator import events
from controlplane.allocator.availability import availability_of
from controlplane.allocator.effects import AllocatorEffect, CreatePool, ResizePool
from controlplane.allocator.explanations import shortage
from controlplane.clouds.interface import QuotaKey
from controlplane.clouds.outcomes import QuotaExceeded, Shortfall
from controlplane.planning.explanations import describe_quota
from controlplane.planning.market import Quotas
from tests.allocator.stage import A, B, C, Stage, a_full_stage, a_stage, asked, of
from tests.planning.builders import ALL_GPUS, disks_of, needs_of

HERE = A.kind.region
PAGE = "https://quotas.example"
TOO_SMALL = "quota {} is too small"
"""The cloud's text of a refusal."""


def left(**changes: int) -> dict[QuotaKey, int]:
    keys = {"disk_gb": disks_of(HERE), "gpus": ALL_GPUS}
    return {keys[name]: amount for name, amount in changes.items()}


def sees_quotas(stage: Stage, **changes: int) -> list[AllocatorEffect]:
    needs = {offer.kind: needs_of(offer.kind) for offer in stage.allocator.offers}
    return stage.happens(events.QuotasSeen(stage.now_s, Quotas(left(**changes), needs, PAGE)))


def refused(requested: float, available: float, metric: str = "DISK_GB") -> QuotaExceeded:
    short = Shortfall(metric, True, requested, available)
    return QuotaExceeded(TOO_SMALL.format(metric), (short,), in_call=True)


def test_zones_of_a_region_share_its_quota_and_the_rest_comes_from_elsewhere() -> None:
    stage = a_stage(A, B, C, wanted=8)
    stage.ticks()
    sees_quotas(stage, disk_gb=399)
    assert asked(stage.lists()) == [("create", "us-a", "3"), ("create", "eu-c", "5")]


def test_a_quota_of_the_project_is_shared_by_all_regions() -> None:
    stage = a_stage(A, C, wanted=8)
    stage.ticks()
    sees_quotas(stage, disk_gb=300, gpus=5)
    assert asked(stage.lists()) == [("create", "us-a", "3"), ("create", "eu-c", "2")]


def test_more_is_asked_for_as_soon_as_a_quota_has_room() -> None:
    stage = a_stage(A, wanted=4)
    stage.ticks()
    sees_quotas(stage, disk_gb=200)
    [create] = of(stage.lists(), CreatePool)
    stage.does(create)
    stage.ends(create)
    stage.fills(A)
    stage.sees()
    assert asked(sees_quotas(stage, disk_gb=300)) == [("resize", "us-a", "3")]


def test_people_hear_which_quota_keeps_a_job_waiting_and_where_to_ask_for_more() -> None:
    stage = a_stage(A, B, wanted=4)
    stage.ticks()
    sees_quotas(stage, disk_gb=0)
    assert asked(stage.lists()) == []
    said = shortage(stage.allocator, stage.now_s)
    assert [each in said for each in (describe_quota(disks_of(HERE)), A.machine_type, PAGE)] == [True] * 3


def test_a_request_that_a_quota_makes_smaller_names_the_quota() -> None:
    stage = a_stage(A, wanted=4)
    stage.ticks()
    sees_quotas(stage, gpus=1)
    [create] = of(stage.lists(), CreatePool)
    assert (create.plan.size, describe_quota(ALL_GPUS) in create.why) == (1, True)


def test_a_request_for_all_that_is_wanted_names_no_quota() -> None:
    stage = a_stage(A, wanted=4)
    stage.ticks()
    sees_quotas(stage, gpus=4)
    [create] = of(stage.lists(), CreatePool)
    assert (create.plan.size, "quota" in create.why) == (4, False)


def test_a_refused_request_is_made_again_at_once_for_what_has_room() -> None:
    stage = a_stage(A, C, wanted=8)
    create = stage.begins()
    ended = stage.ends(create, refused(requested=800, available=350))
    assert asked(ended) == [("create", "us-a", "3"), ("create", "eu-c", "5")]
    assert TOO_SMALL.format("DISK_GB") in of(ended, CreatePool)[0].why


def test_a_refused_raise_keeps_what_the_pool_has_and_asks_for_what_has_room_beside_it() -> None:
    stage = a_full_stage(A, wanted=3)
    [resize] = of(stage.wants(8), ResizePool)
    assert asked(stage.ends(resize, refused(requested=500, available=240))) == [("resize", "us-a", "5")]


def test_a_second_refusal_closes_the_zone_for_long() -> None:
    stage = a_stage(A, wanted=8)
    create = stage.begins()
    [again] = of(stage.ends(create, refused(requested=800, available=350)), CreatePool)
    assert asked(stage.ends(again, refused(requested=300, available=250))) == []
    assert asked(stage.ticks(stage.allocator.settings.quota_s - 1.0)) == [("list",)]


def test_a_long_notice_does_not_keep_a_zone_closed_for_longer_than_a_refusal_does() -> None:
    stage = a_full_stage(A, wanted=3)
    [resize] = of(stage.wants(4), ResizePool)
    stage.notices("us-a-1", remaining_s=3600.0)
    stage.ends(resize, refused(requested=100, available=0))
    assert availability_of(stage.allocator, A.kind).closed_until_s == stage.now_s + stage.allocator.settings.quota_s


def test_where_no_node_has_room_the_next_offer_elsewhere_is_asked_at_once() -> None:
    stage = a_stage(A, B, C, wanted=2)
    create = stage.begins()
    assert asked(stage.ends(create, refused(requested=200, available=50))) == [("create", "eu-c", "2")]


def test_what_was_read_before_a_refusal_does_not_undo_what_the_refusal_said() -> None:
    stage = a_stage(A, wanted=8)
    create = stage.begins()
    read_s = stage.now_s
    stage.now_s += 1.0
    [again] = of(stage.ends(create, refused(requested=800, available=350)), CreatePool)
    late = events.QuotasSeen(read_s, Quotas())
    assert asked(stage.happens(late)) == []
    stage.does(again)
    assert asked(stage.ends(again)) == []
    stage.now_s += 1.0
    assert asked(stage.happens(events.QuotasSeen(stage.now_s, Quotas()))) == [("resize", "us-a", "8")]
