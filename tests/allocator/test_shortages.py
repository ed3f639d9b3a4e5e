"""Zones without machines, quotas, refusals: requests pause there, and the next zone is tried."""

from dataclasses import replace

from controlplane.allocator import events
from controlplane.allocator.availability import availability_of, close, reopen_after
from controlplane.allocator.effects import Announce, CreatePool, RemoveNodes, ResizePool
from controlplane.allocator.offers import pool_ref
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import Shortage
from controlplane.clouds.interface import RecentShortage
from controlplane.clouds.outcomes import (
    Busy,
    PartlyDone,
    QuotaExceeded,
    Refused,
    StockedOut,
    Unexplained,
    Unfinished,
)
from tests.allocator.stage import EU, JOB, A, B, C, Stage, a_full_stage, a_stage, asked, held_by, of

NO_END = "no end after 600 s"
IN_PROGRESS = "an operation is in progress"
MOON = "the moon is wrong"


def _one_of_three_came() -> tuple[Stage, CreatePool]:
    """One of three nodes came in the first pool, whose creation still runs."""
    stage = a_stage()
    create = stage.begins()
    stage.does(create)
    stage.machines[create.ref] = {"us-a-1": "uid-1"}
    stage.sees()
    return stage, create


def test_a_stockout_gives_up_what_was_not_got_and_continues_with_the_next_offer_at_once() -> None:
    stage, create = _one_of_three_came()
    ended = stage.ends(create, StockedOut("GCE_STOCKOUT"))
    assert asked(ended) == [("resize", "us-a", "1"), ("create", "us-b", "2")]
    assert "GCE_STOCKOUT" in of(ended, ResizePool)[0].why
    assert [each.kind for each in of(ended, Announce)][:1] == ["zone_stocked_out"]


def test_nodes_that_do_not_come_in_time_are_given_up_before_any_are_asked_for_elsewhere() -> None:
    """The cloud still tries, and refuses to lower the pool until it stops."""
    stage, create = _one_of_three_came()
    ended = stage.ends(create, Unfinished(NO_END))
    assert asked(ended) == [("resize", "us-a", "1")]
    [lower] = of(ended, ResizePool)
    assert NO_END in lower.why
    assert asked(stage.ends(lower, Busy(IN_PROGRESS))) == []
    [again] = of(stage.ticks(1.0), ResizePool)
    assert asked(stage.ends(again)) == [("create", "us-b", "2")]


def test_a_pool_that_cannot_even_be_lowered_does_not_keep_the_job_waiting_for_ever() -> None:
    stage = a_stage(A, B, wanted=1)
    create = stage.begins()
    stage.does(create)
    [lower] = of(stage.ends(create, Unfinished(NO_END)), ResizePool)
    stage.ends(lower, Busy(IN_PROGRESS))
    stage.now_s += 119.0
    assert asked(stage.ticks()) == [("resize", "us-a", "0"), ("list",)]
    assert ("create", "us-b", "1") in asked(stage.ticks(1.0))


def test_what_comes_after_all_of_a_pool_that_was_given_up_goes_as_it_comes() -> None:
    stage = a_stage(A, B, wanted=1)
    create = stage.begins()
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
    [abandoned] = of(stage.sees(), RemoveNodes)
    assert asked(stage.ends(abandoned, Unfinished("no end"))) == [("list",)]
    assert stage.allocator.availability[A.kind].closed_until_s is None


def test_a_stocked_out_zone_is_left_alone_for_a_while_that_doubles() -> None:
    stage = a_stage(A, wanted=1)
    ask = stage.begins()
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
    create = stage.begins()
    stage.does(create)
    [next_one] = of(stage.ends(create, StockedOut("none")), CreatePool)
    assert next_one.plan.kind.machine_type == "a2-highgpu-1g"


def test_a_stockout_never_releases_a_node_that_is_held() -> None:
    stage = a_full_stage(A, wanted=3)
    [grow] = of(stage.wants(5), ResizePool)
    stage.does(grow)
    ended = stage.ends(grow, StockedOut("none"))
    assert asked(ended) == [("resize", "us-a", "3")]
    assert held_by(stage) == {"us-a": 3}


def test_an_exceeded_quota_is_looked_into_and_left_alone_for_long() -> None:
    stage = a_stage(A, B, wanted=2)
    create = stage.begins()
    assert asked(stage.ends(create, QuotaExceeded("PREEMPTIBLE_NVIDIA_T4_GPUS"))) == [("list",)]
    assert asked(stage.lists()) == [("create", "us-b", "2")]
    stage.ticks(800.0)
    assert stage.allocator.availability[A.kind].closed_until_s == 1000.0


def test_a_zone_that_was_often_empty_is_left_alone_no_longer_for_its_first_refused_quota() -> None:
    allocator, now_s = a_stage().allocator, 100.0
    for _ in range(4):
        allocator = close(allocator, A.kind, Shortage.STOCKOUT, "none", now_s)
        now_s = (availability_of(allocator, A.kind).closed_until_s or now_s) + 1.0
    closed = close(allocator, A.kind, Shortage.QUOTA, "GPUS", now_s)
    assert availability_of(closed, A.kind).closed_until_s == now_s + allocator.settings.quota_s


def test_a_stockout_is_not_told_as_the_reason_while_the_quota_keeps_a_zone_closed() -> None:
    allocator = close(a_stage().allocator, A.kind, Shortage.QUOTA, "GPUS", 100.0)
    both = close(allocator, A.kind, Shortage.STOCKOUT, "none", 101.0)
    assert availability_of(both, A.kind).closed == availability_of(allocator, A.kind).closed
    given_back = reopen_after(both, replace(A, zone="us-z").kind)
    assert availability_of(given_back, A.kind).closed_until_s == 101.0 + allocator.settings.stockout_s


def test_a_refusal_is_told_with_its_hint_and_the_next_offer_is_tried() -> None:
    stage = a_stage(A, B, wanted=2)
    create = stage.begins()
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


def _short_pool(shortage: RecentShortage) -> Stage:
    """Three of four nodes exist, and the cloud lists this refusal."""
    stage = a_full_stage(A, B)
    stage.ends(of(stage.wants(4), ResizePool)[0])
    ref = pool_ref(JOB, A)
    stage.cloud[ref] = replace(stage.cloud[ref], shortage=shortage)
    stage.ticks(30.0)
    stage.sees()
    return stage


def test_a_node_that_was_refused_lately_is_given_up_and_its_zone_closed() -> None:
    stage = _short_pool(RecentShortage(StockedOut("GCE_STOCKOUT"), 20.0))
    assert asked(stage.lists()) == [("resize", "us-a", "3"), ("create", "us-b", "1")]


def test_a_quota_or_a_person_that_refused_a_node_closes_its_zone_for_long() -> None:
    stage = _short_pool(RecentShortage(Refused("no permission", "grant it"), 20.0))
    stage.lists()
    closed = availability_of(stage.allocator, A.kind).closed
    assert closed is not None
    assert (closed.shortage, closed.hint) == (Shortage.REFUSED, "grant it")


def test_an_old_refusal_is_no_new_stockout() -> None:
    stage = _short_pool(RecentShortage(StockedOut("GCE_STOCKOUT"), 301.0))
    assert asked(stage.lists()) == []
    assert availability_of(stage.allocator, A.kind).closed is None


def test_a_refusal_that_closed_a_zone_does_not_close_it_again() -> None:
    stage = a_stage(A, wanted=2)
    create = stage.begins()
    stage.does(create)
    stage.ends(create, PartlyDone(1, StockedOut("none")))
    stage.does(replace(create, plan=replace(create.plan, size=2)))
    stage.now_s += 40.0
    stage.sees()
    ref = pool_ref(JOB, A)
    stage.cloud[ref] = replace(stage.cloud[ref], shortage=RecentShortage(StockedOut("none"), 41.0))
    closed = availability_of(stage.allocator, A.kind).closed
    stage.ticks()
    stage.lists()
    assert availability_of(stage.allocator, A.kind).closed == closed


def test_nodes_that_were_granted_are_waited_for_and_the_rest_is_asked_for_elsewhere_at_once() -> None:
    stage = a_stage(A, B, wanted=3)
    create = stage.begins()
    stage.does(replace(create, plan=replace(create.plan, size=1)))
    ended = stage.ends(create, PartlyDone(1, StockedOut("GCE_STOCKOUT")))
    assert asked(ended) == [("create", "us-b", "2")]
    assert [each.kind for each in of(ended, Announce)][:1] == ["zone_stocked_out"]
    stage.ends(of(ended, CreatePool)[0])
    stage.sees()
    assert asked(stage.ticks(10.0)) == []
    stage.fills(A)
    stage.fills(B)
    assert asked(stage.sees()) == []
    assert held_by(stage) == {"us-a": 1, "us-b": 2}


def test_a_granted_node_that_never_comes_is_given_up() -> None:
    stage = a_stage(A, wanted=1, settings=AllocatorSettings(relist_s=10_000.0, fresh_s=10_000.0))
    create = stage.begins()
    stage.does(create)
    stage.ends(create, PartlyDone(1, QuotaExceeded("GPUS")))
    stage.sees()
    assert asked(stage.ticks(599.0)) == []
    assert asked(stage.ticks(1.0)) == [("resize", "us-a", "0")]


def test_a_pool_that_stays_busy_does_not_keep_the_job_from_other_zones() -> None:
    """As after a stockout, while the cloud's own operation continues for half an hour."""
    stage = a_stage(A, B, wanted=1)
    ask = stage.begins()
    for _ in range(2):
        stage.ends(ask, Busy(IN_PROGRESS))
        [ask] = of(stage.ticks(4.0), CreatePool)
        assert ask.plan.kind.zone == "us-a"
    assert asked(stage.ends(ask, Busy(IN_PROGRESS))) == [("create", "us-b", "1")]


def test_a_refusal_without_a_known_reason_is_told_once_tried_a_few_times_and_then_refused() -> None:
    stage = a_stage(A, B, wanted=1)
    ask, reported = stage.begins(), list[Announce]()
    stage.allocator = replace(stage.allocator, settings=replace(stage.allocator.settings, busy_tries=100))
    for _ in range(4):
        reported += of(stage.ends(ask, Unexplained(MOON)), Announce)
        stage.now_s += 60.0
        [ask] = of([*stage.ticks(), *stage.lists()], CreatePool)
        assert ask.plan.kind.zone == "us-a"
    assert [(each.kind, each.why) for each in reported] == [("pool_trouble", MOON)]
    ended = stage.ends(ask, Unexplained(MOON))
    assert [each.kind for each in of(ended, Announce)] == ["cloud_refused"]
    assert asked(stage.lists()) == [("create", "us-b", "1")]
    closed = availability_of(stage.allocator, A.kind).closed
    assert closed is not None
    assert closed.detail == MOON


def test_a_slot_that_is_left_to_the_cloud_is_looked_at_soon_and_then_less_and_less_often() -> None:
    stage = a_full_stage(A)
    stage.takes("us-a-2")
    assert asked(stage.sees()) == []
    lost_s = stage.now_s
    looks = []
    while stage.now_s < lost_s + 60.0:
        if ("list",) in asked(stage.ticks(0.5)):
            looks.append(stage.now_s - lost_s)
            stage.lists()
    assert looks == [3.0, 6.0, 12.0, 24.0, 48.0]


def test_a_cluster_that_is_not_there_is_passed_over() -> None:
    stage = a_stage(C, A, wanted=1)
    stage.ticks()
    clusters = tuple(replace(cluster, ready=cluster.name != EU) for cluster in stage.clusters())
    assert asked(stage.happens(events.PoolsListed(stage.now_s, 1, clusters))) == [("create", "us-a", "1")]
