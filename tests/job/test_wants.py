"""Requests of a job to its allocator, and the answers that count."""

from msgspec import structs
from msgspec.structs import replace

from controlplane.job import events
from controlplane.job.effects import JobEffect, WantNodes
from controlplane.job.queries import DESERTED_S
from controlplane.job.state import Want
from controlplane.job.wants import DEADLINE_EVERY_S
from messages.criteria import Capacity, Deadline, Objective, WhenSpent
from messages.ids import ClusterName
from messages.jobs import JobSpec, Workers
from tests.job.stage import LOCAL, Stage, a_spec, a_stage, kept

WHY = "the cloud does not answer"

FAR = ClusterName("far")
HOUR_S = 3600.0


def wants(effects: list[JobEffect]) -> list[Want]:
    return [effect.want for effect in effects if isinstance(effect, WantNodes)]


def running(*workers: str) -> Stage:
    return a_stage(a_spec(workers=len(workers))).runs(*workers)


def far_reports(stage: Stage) -> list[JobEffect]:
    return stage.happens(events.ClusterReported(stage.now_s, FAR, "f1", is_whole=True))


def with_a_deadline(hours: float, steps: int) -> JobSpec:
    capacity = Capacity(objective=Objective.DEADLINE, deadline=Deadline(hours=hours, steps=steps))
    return structs.replace(a_spec(workers=2), capacity=capacity)


def test_a_new_job_wants_as_many_nodes_as_it_may_have() -> None:
    stage = a_stage(a_spec(workers=3))
    [want] = wants(stage.happens(events.Ticked(stage.now_s)))
    assert (want.number, want.nodes, want.ended) == (1, 3, None)
    assert wants(stage.happens(events.Ticked(stage.now_s + 1.0))) == []


def test_each_change_is_a_want_of_its_own() -> None:
    stage = running("a", "b", "c")
    [fewer] = wants(stage.happens(events.ScaleAsked(stage.now_s, 2)))
    assert (fewer.number, fewer.nodes) == (2, 2)
    [stopped] = wants(stage.happens(events.BudgetRaised(stage.now_s, 20.0)))
    assert (stopped.number, stopped.max_usd_total) == (3, 20.0)


def test_a_size_that_its_file_forbids_changes_nothing() -> None:
    stage = running("a", "b", "c")
    limits = Workers(min=1, max=3, allowed=(1, 3))
    stage.job = replace(stage.job, spec=replace(stage.job.spec, workers=limits))
    for workers in (0, 2, 4):
        assert wants(stage.happens(events.ScaleAsked(stage.now_s, workers))) == []
    [fewer] = wants(stage.happens(events.ScaleAsked(stage.now_s, 1)))
    assert fewer.nodes == 1


def test_a_paused_job_wants_none_and_one_without_money_for_it_none_on_demand() -> None:
    stage = running("a", "b")
    record = stage.job.record
    [scarce] = wants(stage.happens(events.BudgetReached(stage.now_s, WhenSpent.ON_DEMAND_OFF, "scarce", record)))
    assert (scarce.nodes, scarce.spot_only) == (2, True)
    [paused] = wants(stage.happens(events.BudgetReached(stage.now_s, WhenSpent.PAUSE, "spent", record)))
    assert paused.nodes == 0


def test_a_job_that_has_ended_says_why() -> None:
    stage = a_stage()
    reported = wants(stage.happens(events.StopAsked(stage.now_s, WHY)))
    assert reported[-1].ended == WHY


def test_a_silent_cluster_without_workers_is_lost_until_it_is_heard_again() -> None:
    stage = running("a", "b")
    far_reports(stage)
    stage.now_s += DESERTED_S + 1.0
    reported = wants(stage.reports(*stage.observations()))
    assert [want.lost for want in reported] == [{FAR}]
    assert [want.lost for want in wants(far_reports(stage))] == [frozenset()]


def test_what_is_left_of_a_deadline_is_looked_at_once_a_minute_since_each_look_means_a_plan() -> None:
    stage = a_stage(with_a_deadline(hours=2.0, steps=7200))
    [want] = wants(stage.happens(events.Ticked(stage.now_s)))
    assert want.deadline is not None
    assert (want.deadline.steps, want.deadline.seconds) == (7200, 2 * HOUR_S)
    assert wants(stage.happens(events.Ticked(stage.now_s + DEADLINE_EVERY_S / 2))) == []
    [later] = wants(stage.happens(events.Ticked(stage.now_s + DEADLINE_EVERY_S)))
    assert later.deadline is not None
    assert (later.deadline.steps, later.deadline.seconds) == (7200, 2 * HOUR_S - DEADLINE_EVERY_S)


def placed(stage: Stage, want: int, workers: int) -> dict[ClusterName, int] | None:
    stage.happens(events.PlacementChanged(stage.now_s, want, {LOCAL: workers}))
    return stage.job.supply.placement


def test_a_placement_that_answers_an_older_want_than_the_newest_changes_nothing() -> None:
    stage = running("a", "b", "c")
    assert placed(stage, 1, 3) == {LOCAL: 3}
    stage.happens(events.ScaleAsked(stage.now_s, 2))
    assert stage.job.supply.want is not None and stage.job.supply.want.number == 2
    assert placed(stage, 1, 1) == {LOCAL: 3}
    assert placed(stage, 2, 2) == {LOCAL: 2}


def test_a_placement_that_comes_before_the_first_decision_counts() -> None:
    stage = a_stage()
    stage.job = replace(stage.job, supply=replace(stage.job.supply, want=None))
    assert placed(stage, 1, 2) == {LOCAL: 2}


def test_until_the_allocator_has_listed_its_pools_each_cluster_keeps_what_it_keeps() -> None:
    stage = running("a", "b", "c")
    assert kept(stage.happens(events.PlacementChanged(stage.now_s, 1, None, WHY))) == []
    assert kept(stage.reports(*stage.observations(), keeps=3)) == []
    assert stage.job.supply.shortage == WHY
    assert kept(stage.happens(events.PlacementChanged(stage.now_s, 1, {LOCAL: 2}))) == [2]
