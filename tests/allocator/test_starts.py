"""Clusters in which workers cannot start: no requests, removed machines, and later retries."""

from controlplane.allocator import events
from controlplane.allocator.effects import Announce, CreatePool, RemoveNodes, ResizePool
from controlplane.allocator.explanations import describe_block, shortage
from controlplane.allocator.offers import Offer
from controlplane.allocator.settings import AllocatorSettings
from controlplane.clouds.outcomes import with_hint
from tests.allocator.planned_stage import FAR, IOWA, PlannedStage, a_running_stage, prices_of
from tests.allocator.stage import EU, GRANT, NO_IMAGE, US, A, B, C, Stage, a_full_stage, a_stage, asked, of

GIVE_BACK_S = AllocatorSettings().start_give_back_s
RETRY_S = AllocatorSettings().start_retry_s


def said(stage: Stage) -> list[str]:
    return [effect.kind for effect in of(stage.effects, Announce)]


def lists(stage: Stage) -> list[tuple[str, ...]]:
    """Time passes until a listing is due, which the cloud answers."""
    return asked([*stage.ticks(31.0), *stage.lists()])


def an_unstartable_stage() -> Stage:
    """Two nodes of a cluster on which no worker can start; no other cluster is offered."""
    stage = a_full_stage(A, wanted=2)
    stage.cannot_start("us-a-1", "us-a-2")
    return stage


def test_nothing_more_is_asked_of_a_cluster_in_which_workers_cannot_start() -> None:
    stage = an_unstartable_stage()
    assert asked(stage.wants(4)) == []
    assert said(stage).count("starts_failed") == 1


def test_the_shortage_says_why_and_what_to_do_though_all_nodes_are_there() -> None:
    stage = an_unstartable_stage()
    block = stage.allocator.blocks[US]
    assert (block.detail, block.hint) == (NO_IMAGE, GRANT)
    assert shortage(stage.allocator, stage.now_s) == describe_block(US, block)


def test_other_clusters_give_what_is_missing() -> None:
    stage = a_full_stage(A, C, wanted=2)
    stage.cannot_start("us-a-1", "us-a-2")
    assert asked(stage.wants(3)) == [("create", "eu-c", "1")]


def test_nodes_that_cannot_be_used_are_given_back_after_a_while_and_not_asked_for_again_at_once() -> None:
    stage = an_unstartable_stage()
    stage.ticks(GIVE_BACK_S - 30.0)
    stage.sees()
    assert of(stage.effects, RemoveNodes) == []
    stage.now_s += 31.0
    stage.cannot_start("us-a-1", "us-a-2", for_s=GIVE_BACK_S + 1.0)
    [remove] = of(stage.effects, RemoveNodes)
    assert remove.nodes == ("us-a-1", "us-a-2")
    assert f" {GIVE_BACK_S + 1.0:.0f} s" in remove.why
    stage.ends(remove)
    stage.sees()
    stage.cannot_start()
    lists(stage)
    assert len(of(stage.effects, CreatePool)) == 1
    assert "node_lost" not in said(stage)
    assert said(stage).count("node_given_back") == 2


def given_back(wanted: int = 2) -> Stage:
    stage = a_full_stage(A, wanted=wanted)
    names = [f"us-a-{number + 1}" for number in range(wanted)]
    stage.now_s += GIVE_BACK_S
    [remove] = of(stage.cannot_start(*names, for_s=GIVE_BACK_S), RemoveNodes)
    stage.ends(remove)
    stage.sees()
    stage.cannot_start()
    stage.lists()
    return stage


def retried(stage: Stage) -> list[tuple[str, ...]]:
    effects = [*stage.ticks(RETRY_S), *stage.lists()]
    return [each for each in asked(effects) if each != ("list",)]


def test_after_the_pause_one_node_tries_whether_workers_start_and_the_next_pause_is_longer() -> None:
    stage = given_back()
    assert retried(stage) == [("resize", "us-a", "1")]
    stage.ends(of(stage.effects, ResizePool)[-1])
    stage.fills(A)
    stage.sees()
    stage.cannot_start("us-a-1")
    block = stage.allocator.blocks[US]
    assert block.failures == 2
    assert block.until_s - stage.now_s == 2 * RETRY_S
    assert said(stage).count("starts_failed") == 2


def test_all_are_asked_for_when_a_worker_starts_on_the_node_that_tried() -> None:
    stage = given_back()
    retried(stage)
    stage.ends(of(stage.effects, ResizePool)[-1])
    stage.fills(A)
    stage.sees()
    assert asked(stage.cannot_start(started={"us-a-1"})) == [("resize", "us-a", "2")]
    assert said(stage)[-2:] == ["starts_work", "pool_raised"]
    assert shortage(stage.allocator, stage.now_s) == ""


def test_a_node_whose_worker_starts_after_all_is_kept_and_ends_the_pause() -> None:
    stage = an_unstartable_stage()
    stage.now_s += GIVE_BACK_S - 10.0
    stage.cannot_start()
    stage.cannot_start(started={"us-a-1", "us-a-2"})
    stage.ticks(20.0)
    stage.sees()
    assert of(stage.effects, RemoveNodes) == []
    assert asked(stage.wants(3)) == [("resize", "us-a", "3")]


def test_workers_that_run_are_left_alone_when_later_ones_cannot_start() -> None:
    stage = a_full_stage(A, B, wanted=2)
    stage.wants(3)
    stage.ends(of(stage.effects, ResizePool)[-1])
    stage.now_s += 5.0
    stage.fills(A)
    stage.sees()
    running = {"us-a-1", "us-a-2"}
    stage.cannot_start("us-a-3", started=running)
    assert asked(stage.wants(4)) == []
    stage.now_s += GIVE_BACK_S
    [remove] = of(stage.cannot_start("us-a-3", for_s=GIVE_BACK_S, started=running), RemoveNodes)
    assert remove.nodes == ("us-a-3",)
    stage.ends(remove)
    stage.sees()
    stage.cannot_start(started=running)
    assert US in stage.allocator.blocks


def test_a_single_node_that_fails_beside_others_of_its_age_goes_alone_and_stops_nothing() -> None:
    stage = a_full_stage(A, wanted=3)
    stage.cannot_start("us-a-3", started={"us-a-1", "us-a-2"})
    assert asked(stage.wants(4)) == [("resize", "us-a", "4")]
    assert "starts_failed" not in said(stage)


def test_a_failure_in_one_cluster_closes_no_other() -> None:
    stage = a_full_stage(A, C, wanted=2)
    stage.cannot_start("us-a-1", "us-a-2", cluster=EU)
    assert asked(stage.wants(3)) == [("resize", "us-a", "3")]


# Controllers that cannot start


def test_a_cluster_whose_controller_cannot_start_gives_back_what_comes_and_opens_when_it_is_heard() -> None:
    stage = a_stage(A, wanted=2)
    create = stage.begins()
    stage.ends(create)
    detail = "its controller cannot start"
    stage.happens(events.ControllerFailed(stage.now_s, US, detail, GRANT))
    assert with_hint(detail, GRANT) in shortage(stage.allocator, stage.now_s)
    [shed] = of(stage.ticks(20.0), ResizePool)
    assert shed.size == 0
    stage.ends(shed)
    assert asked(stage.sees()) == [("resize", "us-a", "2")]
    assert US not in stage.allocator.blocks


# Planned jobs


def a_planned_stage_that_gave_all_back(*offers: Offer) -> PlannedStage:
    """Its four nodes were unusable and are gone."""
    stage = a_running_stage(*offers, options=prices_of(offers, **{FAR.zone.replace("-", "_"): 0.9}))
    names = [name for nodes in stage.machines.values() for name in nodes]
    assert len(names) == 4
    stage.now_s += GIVE_BACK_S
    [remove] = of(stage.cannot_start(*names, for_s=GIVE_BACK_S), RemoveNodes)
    stage.ends(remove)
    stage.sees()
    stage.cannot_start()
    return stage


def test_a_planned_job_goes_to_a_cluster_in_which_workers_start() -> None:
    stage = a_planned_stage_that_gave_all_back(IOWA, FAR)
    made = [*stage.effects, *stage.settles()]
    assert ("create", FAR.zone, "4") in stage.words(made)


def test_a_planned_job_that_has_no_other_cluster_waits_and_then_tries_with_as_many_as_it_needs() -> None:
    stage = a_planned_stage_that_gave_all_back(IOWA)
    before = len(stage.effects)
    stage.settles()
    assert of(stage.effects[before:], ResizePool) == []
    stage.ticks(RETRY_S)
    stage.lists()
    stage.settles()
    assert ("resize", IOWA.zone, "4") in stage.words(stage.effects[before:])
