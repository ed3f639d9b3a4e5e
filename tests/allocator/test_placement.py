"""The placement of workers, and unused nodes."""

from dataclasses import replace

from controlplane.allocator import events
from controlplane.allocator.effects import CreatePool, Place, RemoveNodes
from controlplane.allocator.explanations import not_ready
from controlplane.allocator.placement import free_nodes, place_of, placement_of
from controlplane.allocator.state import new_allocator
from messages.clusters import ClusterHeartbeat, NodeObservation, Presence, WorkerObservation
from messages.ids import JobName
from messages.workers import WorkerPhase
from tests.allocator.planned_stage import FAR, IOWA, PlannedStage, a_running_stage, prices_of
from tests.allocator.stage import EU, US, A, C, Stage, a_full_stage, a_stage, next_want, of
from tests.capacity.builders import JOB, a_starting_worker, a_worker


def a_spread_stage() -> Stage:
    """Two nodes in us, one in eu, all in use."""
    few, more = replace(A, max_nodes=2), C
    stage = a_stage(few, more, wanted=3)
    stage.ticks()
    for create in of(stage.lists(), CreatePool):
        stage.ends(create)
    for offer in (few, more):
        stage.fills(offer)
        stage.sees(offer.cluster)
    return stage


def test_there_is_a_worker_for_each_node_that_is_there_or_on_its_way() -> None:
    stage = a_full_stage(A, C, wanted=3)
    assert placement_of(stage.allocator) == {US: 3}
    stage.takes("us-a-1")
    stage.sees()
    assert placement_of(stage.allocator) == {US: 2, EU: 1}


def test_before_the_first_listing_no_cluster_is_told_how_many_to_keep() -> None:
    stage = a_stage(A, wanted=3)
    stage.ticks()
    assert place_of(stage.allocator, stage.now_s).workers is None
    stage.lists()
    assert place_of(stage.allocator, stage.now_s).workers == {US: 3}


def test_a_cluster_whose_nodes_were_not_seen_yet_keeps_its_workers() -> None:
    stage = a_spread_stage()
    offers = stage.allocator.offers
    stage.allocator = new_allocator(stage.allocator.job, offers, wanted=2, at_s=stage.now_s)
    stage.ticks()
    stage.lists()
    assert placement_of(stage.allocator)[EU] == 1
    stage.sees(US)
    assert placement_of(stage.allocator)[EU] == 1


def test_while_it_is_not_known_what_a_pool_aims_at_no_worker_is_put_where_no_node_will_be() -> None:
    stage = a_full_stage(A, C, wanted=3)
    stage.takes("us-a-1")
    [abandoned] = of(stage.sees(), RemoveNodes)
    stage.ends(abandoned)
    assert stage.pool(A).doubt is not None
    assert placement_of(stage.allocator) == {US: 2, EU: 1}


def test_no_more_workers_are_placed_than_are_wanted_even_while_their_nodes_are_in_use() -> None:
    stage = a_full_stage(A, C, wanted=3)
    stage.wants(2)
    assert placement_of(stage.allocator) == {US: 2}


def test_a_cluster_where_a_worker_is_at_work_is_never_told_to_end_all() -> None:
    stage = a_spread_stage()
    stage.wants(1)
    assert placement_of(stage.allocator) == {US: 1, EU: 1}
    stage.releases("us-a-1", "us-a-2", cluster=US)
    assert placement_of(stage.allocator) == {EU: 1}


def test_a_free_node_that_is_too_much_gets_no_worker() -> None:
    stage = a_spread_stage()
    stage.releases("eu-c-1", cluster=EU)
    assert placement_of(stage.allocator) == {US: 2, EU: 1}
    stage.wants(2)
    assert placement_of(stage.allocator) == {US: 2}


def test_a_job_that_has_ended_has_no_workers_anywhere() -> None:
    stage = a_spread_stage()
    stage.job_ends("succeeded")
    assert placement_of(stage.allocator) == {}


def a_topology(*workers: WorkerObservation, job: JobName = JOB) -> ClusterHeartbeat:
    nodes = tuple(NodeObservation(f"n{number}", f"u{number}", pool="p", job=job) for number in range(3))
    return ClusterHeartbeat(cluster=US, incarnation="a1", seq=1, nodes=nodes, workers=workers)


def test_a_node_is_free_where_the_job_has_no_worker_or_an_idle_one() -> None:
    busy, idle = a_worker("w0-0001", "n0"), a_worker("w1-0001", "n1", WorkerPhase.IDLE)
    gone = a_worker("w2-0001", "n2", presence=Presence.GONE)
    assert free_nodes(a_topology(busy, idle, gone), JOB) == ("n1", "n2")


def test_a_worker_that_is_warming_up_or_silent_is_one_that_needs_its_node() -> None:
    warming = a_worker("w0-0001", "n0", WorkerPhase.WARMING)
    silent = a_worker("w1-0001", "n1", presence=Presence.SILENT)
    assert free_nodes(a_topology(warming, silent), JOB) == ("n2",)


def test_the_one_that_is_warm_first_keeps_its_node_while_others_are_warming_up() -> None:
    idle, warming = a_worker("w0-0001", "n0", WorkerPhase.IDLE), a_worker("w1-0001", "n1", WorkerPhase.WARMING)
    assert free_nodes(a_topology(idle, warming), JOB) == ("n2",)


def test_no_node_is_free_while_it_is_not_known_where_a_worker_is() -> None:
    assert free_nodes(a_topology(a_starting_worker("w0-0000")), JOB) == ()


def test_nodes_of_others_are_none_of_ours() -> None:
    assert free_nodes(a_topology(job=JobName("other")), JOB) == ()


# Planned jobs


def a_dear_stage() -> PlannedStage:
    """All nodes are in us, where they became expensive."""
    offers = (IOWA, FAR)
    cheap = prices_of(offers, us_central1_a=0.1, europe_west4_a=0.5)
    stage = a_running_stage(*offers, options=cheap, min_workers=2, max_workers=4)
    stage.sees_prices(*prices_of(offers, us_central1_a=0.9, europe_west4_a=0.1))
    return stage


def test_a_planned_job_has_a_worker_for_each_node_of_its_plan() -> None:
    stage = a_running_stage(IOWA, FAR, min_workers=3, max_workers=3)
    assert sum(placement_of(stage.allocator).values()) == 3
    assert place_of(stage.allocator, stage.now_s).leaving == {}


def test_while_a_job_moves_there_are_workers_where_it_was_until_there_are_some_where_it_goes() -> None:
    stage = a_dear_stage()
    before = placement_of(stage.allocator)
    made = stage.settles()
    assert place_of(stage.allocator, stage.now_s).leaving == {}
    assert placement_of(stage.allocator) == {**before, EU: 4 - before[US]}
    stage.gets(*made)
    stage.settles()
    placed = place_of(stage.allocator, stage.now_s)
    assert set(placed.leaving) == {US}
    assert all(name.startswith(IOWA.zone) for name in placed.leaving[US])
    assert not placed.at_once
    assert placed.workers is not None
    assert placed.workers[US] == max(1, before[US] - len(placed.leaving[US]))


def test_under_a_cap_without_room_for_both_all_have_to_go_at_once() -> None:
    stage = a_running_stage(
        IOWA,
        FAR,
        options=prices_of((IOWA, FAR), us_central1_a=0.4, europe_west4_a=1.0),
        min_workers=2,
        max_workers=2,
        max_micro_usd_per_hour=1_000_000,
    )
    stage.sees_prices(*prices_of((IOWA, FAR), us_central1_a=0.6, europe_west4_a=0.1))
    stage.settles()
    placed = place_of(stage.allocator, stage.now_s)
    assert (len(placed.leaving[US]), placed.at_once) == (2, True)
    assert placed.workers == {US: 1}


# The placement for the job


def test_a_placement_names_the_want_that_it_answers() -> None:
    stage = a_full_stage(A, wanted=3)
    [place] = of(stage.wants(2), Place)
    assert (place.want, place.workers) == (stage.allocator.want, {US: 2})
    [again] = of(stage.wants(2), Place)
    assert again == replace(place, want=place.want + 1)
    assert of(stage.ticks(1.0), Place) == []


def test_a_want_that_is_older_than_the_newest_teaches_nothing() -> None:
    stage = a_full_stage(A, wanted=3)
    late = next_want(stage.allocator, stage.now_s, nodes=1, ended="it was stopped")
    stage.wants(2)
    assert of(stage.happens(late), Place) == []
    assert (stage.allocator.wanted, stage.allocator.ended) == (2, None)


def test_why_a_cluster_is_not_ready_is_told_when_it_changes() -> None:
    stage = a_stage(A, wanted=1)
    stage.ticks()
    stage.happens(events.PoolsListed(stage.now_s, stage.allocator.listing.number, ()))
    waits_for = "it is being created"
    [place] = of(stage.happens(events.ReadinessSeen(stage.now_s, US, waits_for)), Place)
    assert place.shortage == not_ready(US, waits_for)
