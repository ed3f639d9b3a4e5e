"""What one decision sets and requests, and when the next one is due."""

from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.job import events
from controlplane.job.decide import decide
from controlplane.job.effects import WatchStore
from controlplane.job.state import Cluster, DeadlineLeft, Start, adopted_job
from controlplane.job.wants import want_nodes
from messages.criteria import Capacity, Deadline
from messages.ids import Epoch, Generation, Rank
from messages.records import Phase
from messages.workers import WorkerPhase
from tests.job.built import OTHER, a_running_job, recorded
from tests.job.live_stage import a_live_job, a_live_stage
from tests.job.stage import LOCAL, a_spec, a_stage, failed


def test_a_running_world_of_scripts_has_its_store_watched_and_a_live_one_has_not() -> None:
    stage = a_stage(a_spec(workers=2))
    stage.join("a", "b")
    stage.ready("a")
    [watch] = [each for each in stage.ready("b") if isinstance(each, WatchStore)]
    assert watch == WatchStore(Generation(1), 2, stage.job.spec.timeouts.meet_s)
    live = a_live_job("a", "b", "c")
    live.sees_gone("c")
    live.parks("a", "b")
    effects = live.enters("a", "b")
    assert live.phase is Phase.RUNNING and not any(isinstance(each, WatchStore) for each in effects)


def test_a_world_begins_without_what_was_known_of_the_one_before() -> None:
    stage = a_stage(a_spec(workers=2, settle_s=50.0)).runs("a", "b")
    stage.reports_status("a", WorkerPhase.READY, step=3, checkpoints=1)
    stage.happens(events.RanksWaited(stage.now_s, stage.generation, (Rank(0),), (Rank(1),)))
    assert stage.job.script.checkpointed_s == 100.0 and stage.job.round.ranks_waiting
    stage.now_s = 110.0
    stage.exits("a", failed(0))
    halted_round = stage.job.round
    assert (halted_round.ranks_waiting, halted_round.assigned_s, stage.job.pause.waiting_since_s) == ("", 110.0, 110.0)
    stage.now_s = 113.0
    stage.parked("a", "b")
    assert (stage.phase, stage.job.pause.waiting_since_s, stage.job.script.start.parking_s) == (
        Phase.WAITING,
        113.0,
        3.0,
    )
    assert stage.job.pause.retry_s == 114.0
    stage.wait(1.0)
    begun = stage.job
    start = begun.script.start
    assert (begun.record.phase, begun.script.checkpointed_s, start.parking_s) == (Phase.FORMING, None, 3.0)
    assert (start.up_s, start.has_step, begun.round.failure, begun.pause.retry_s) == (None, False, None, None)


@pytest.mark.parametrize(("failures", "phase"), [(1, Phase.WAITING), (0, Phase.FAILED)])
def test_a_job_fails_with_one_failure_more_than_is_allowed(failures: int, phase: Phase) -> None:
    stage = a_stage(a_spec(workers=1, failures=failures)).runs("a")
    stage.exits("a", failed(0, "last line"))
    stage.parked("a")
    assert (stage.phase, stage.job.record.failures) == (phase, 1)
    assert stage.job.record.failed_tail == (("last line",) if phase is Phase.FAILED else ())


def test_a_planned_switch_begins_a_world_and_frees_what_was_prepared() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.join("c")
    stage.attaches("c")
    assert stage.prepared is not None
    stage.now_s += 1.0
    stage.enters("a", "b", "c")
    assert stage.prepared is None and stage.generation == 2 and stage.phase is Phase.RUNNING
    assert (stage.job.round.assigned_s, stage.job.record.formed, stage.job.why) == (101.0, 2, "a world of 3")


def test_too_few_ranks_for_a_replica_are_said() -> None:
    stage = a_stage(a_spec(workers=2, replica=2))
    stage.join("a")
    stage.wait(30.0)
    assert stage.phase is Phase.WAITING and "too few ranks for one replica of 2" in stage.job.why


def test_a_stop_ends_a_waiting_job_in_one_decision() -> None:
    stage = a_stage(a_spec(workers=2, at_least=2))
    stage.join("a")
    stage.happens(events.StopAsked(stage.now_s, "asked"))
    assert (stage.phase, stage.job.record.why) == (Phase.STOPPED, "asked")


def test_a_restart_that_waits_wakes_the_core_when_it_is_due() -> None:
    stage = a_stage(a_spec(workers=3, settle_s=0.25)).runs("a", "b")
    stage.join("c")
    assert stage.phase is Phase.RUNNING and stage.wake_at_s == 100.25


def test_a_report_without_news_decides_nothing_and_keeps_the_time_of_the_next_decision() -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    stage.reports(*stage.observations())
    stage.wait(0.0)
    job, due_s = stage.job, stage.wake_at_s
    assert due_s is not None and job.due_s == due_s
    report = events.ClusterReported(stage.now_s + 0.1, LOCAL, "a1", 2, 5)
    decision = decide(job, report)
    assert (decision.effects, decision.wake_at_s, decision.state.due_s) == ((), due_s, due_s)
    assert decision.state.clusters[LOCAL].step == 5
    for news in (
        replace_report(report, keeps=1),
        replace_report(report, incarnation="a2"),
        replace_report(report, cluster=OTHER),
        events.Ticked(stage.now_s + 0.1),
    ):
        assert decide(job, news).state.due_s != due_s
    assert decide(job, events.ClusterReported(due_s, LOCAL, "a1", 2, 5)).state.due_s > due_s


def replace_report(report: events.ClusterReported, **changes: Any) -> events.ClusterReported:
    fields = {"at_s": report.at_s, "cluster": report.cluster, "incarnation": report.incarnation, "keeps": report.keeps}
    return events.ClusterReported(**{**fields, **changes})


def test_an_ended_job_that_is_saved_and_left_never_wakes() -> None:
    stage = a_stage(a_spec(workers=1))
    stage.happens(events.StopAsked(stage.now_s, "asked"))
    assert stage.phase is Phase.STOPPED and stage.wake_at_s is None
    assert decide(stage.job, events.ClusterAnswered(200.0, OTHER, "")).wake_at_s is None


def test_a_new_master_takes_the_record_over_with_its_own_epoch() -> None:
    job = a_running_job("a", "b")
    adopted = adopted_job(job.spec, recorded(job, epoch=Epoch(1)).record, epoch=Epoch(5), at_s=500.0)
    assert (adopted.record.epoch, adopted.storage.saved) == (5, recorded(job, epoch=Epoch(1)).record)
    assert adopted.round.store_lost and adopted.round.assigned_s == adopted.round.prepared_s == 500.0
    assert adopted.script.start == Start(up_s=500.0, cost_before_s=3.0) and adopted.gathers_until_s == 502.5


def test_a_live_job_of_several_ranks_is_halted_if_one_trainer_was_halted_before_it_switched() -> None:
    stage = a_live_stage(a_spec(workers=3, ranks=2)).trains("a", "b")
    stage.join("c")
    stage.attaches("c")
    assert stage.prepared is not None
    first, second = stage.trainers["a"]
    stage.tell("a", replace(first, parked=Generation(2)), second)
    assert stage.phase is Phase.RESHAPING and stage.job.record.why == "worker a was halted before it switched"


@pytest.mark.parametrize(("heard_s", "is_news"), [(97.7, False), (97.5, True)])
def test_a_cluster_that_was_silent_is_news_when_it_reports_again(heard_s: float, is_news: bool) -> None:
    stage = a_stage(a_spec(workers=2)).runs("a", "b")
    stage.reports(*stage.observations())
    stage.wait(0.0)
    job = replace(stage.job, clusters={**stage.job.clusters, OTHER: Cluster("b1", heard_s, 0)})
    decision = decide(job, events.ClusterReported(100.1, OTHER, "b1"))
    assert (decision.state.due_s != job.due_s) is is_news


def test_the_steps_left_to_a_deadline_are_counted_from_the_furthest_cluster() -> None:
    spec = replace(a_spec(workers=2), capacity=Capacity(deadline=Deadline(hours=1.0, steps=100)))
    job = a_stage(spec).runs("a", "b").job
    clusters = {LOCAL: Cluster("a1", 100.0, 2, step=5), OTHER: Cluster("b1", 100.0, 0, step=30)}
    job, wants = want_nodes(replace(job, clusters=clusters), 200.0)
    assert [want.want.deadline for want in wants] == [DeadlineLeft(70, 3500.0, 200.0)]
