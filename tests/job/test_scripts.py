"""Growth of a world of plain scripts: each change restarts the scripts, so it waits for a checkpoint."""

from controlplane.job import events, texts
from controlplane.job.state import adopted_job
from messages.ids import Epoch
from messages.jobs import JobSpec
from messages.records import Phase
from messages.workers import WorkerPhase
from tests.job.live_stage import a_live_job
from tests.job.stage import Stage, a_spec, a_stage, halts


def a_loss(*, starts_in_s: float = 2.0, settle_s: float | None = None, spec: JobSpec | None = None) -> Stage:
    """Three workers train, c is lost, a and b continue after `starts_in_s`, and d waits."""
    stage = a_stage(spec or a_spec(settle_s=settle_s)).runs("a", "b", "c")
    stage.wait(100.0)
    stage.reports(*stage.observations())
    stage.sees_gone("c")
    stage.parked("a", "b")
    stage.now_s += starts_in_s
    stage.ready("a", "b")
    assert stage.phase is Phase.RUNNING
    return stage


def passes(stage: Stage, seconds: float) -> Phase:
    """Lets time pass while all workers are heard every second."""
    until_s = stage.now_s + seconds
    while stage.now_s < until_s:
        stage.now_s = min(until_s, stage.now_s + 1.0)
        stage.reports(*stage.observations())
    return stage.phase


def test_a_replacement_is_not_admitted_before_the_world_has_lived_20_times_the_cost_of_a_restart() -> None:
    stage = a_loss(starts_in_s=2.0)
    stage.join("d")
    assert (stage.phase, set(stage.world)) == (Phase.RUNNING, {"a", "b"})
    assert passes(stage, 39.0) is Phase.RUNNING
    assert passes(stage, 1.5) is Phase.RESHAPING
    assert stage.job.record.why == "worker d joined"


def test_nothing_but_the_clock_is_needed_to_admit_it() -> None:
    stage = a_loss(starts_in_s=0.01)
    stage.join("d")
    assert stage.phase is Phase.RUNNING
    assert halts(stage.wait(0.21))


def test_ten_minutes_are_enough_whatever_a_restart_costs() -> None:
    stage = a_loss(starts_in_s=19.0, spec=a_spec(settle_s=None))
    stage.happens(events.RanksMet(stage.now_s + 60.0, stage.generation))
    stage.now_s += 60.0
    stage.join("d")
    assert passes(stage, 599.0) is Phase.RUNNING
    assert passes(stage, 2.0) is Phase.RESHAPING


def test_a_restart_has_cost_what_it_took_until_the_ranks_met() -> None:
    stage = a_loss(starts_in_s=0.1)
    stage.now_s += 2.0
    stage.happens(events.RanksMet(stage.now_s, stage.generation))
    stage.join("d")
    assert passes(stage, 41.0) is Phase.RUNNING
    assert passes(stage, 2.0) is Phase.RESHAPING


def test_a_restart_has_cost_what_it_took_until_the_first_step() -> None:
    stage = a_loss(starts_in_s=0.1)
    stage.now_s += 2.0
    stage.reports_status("a", WorkerPhase.READY, step=0)
    passes(stage, 10.0)
    stage.reports_status("a", WorkerPhase.READY, step=1)
    stage.join("d")
    assert passes(stage, 31.0) is Phase.RUNNING
    assert passes(stage, 2.0) is Phase.RESHAPING


def test_a_world_of_unknown_cost_counts_as_costing_as_much_as_the_one_before() -> None:
    stage = a_loss(starts_in_s=5.0)
    passes(stage, 5.0)
    stage.sees_gone("b")
    stage.parked("a")
    stage.ready("a")
    stage.join("d")
    assert passes(stage, 98.0) is Phase.RUNNING
    assert passes(stage, 3.0) is Phase.RESHAPING


def test_a_checkpoint_admits_those_who_wait() -> None:
    stage = a_loss(starts_in_s=2.0)
    stage.join("d")
    assert halts(stage.reports_status("a", WorkerPhase.READY, checkpoints=1))
    assert stage.phase is Phase.RESHAPING


def test_a_checkpoint_of_a_while_ago_admits_nobody() -> None:
    stage = a_loss(starts_in_s=2.0)
    stage.reports_status("a", WorkerPhase.READY, checkpoints=1)
    passes(stage, 10.0)
    stage.join("d")
    assert passes(stage, 5.0) is Phase.RUNNING
    assert halts(stage.reports_status("a", WorkerPhase.READY, checkpoints=2))


def test_the_job_says_until_when_a_worker_waits() -> None:
    stage = a_loss(starts_in_s=9.0)
    stage.join("d")
    assert stage.job.why == f"{texts.world_of(2)}; {texts.waits_for_admission(1, 180.0)}" and "3 min" in stage.job.why
    passes(stage, 130.0)
    assert stage.job.why == f"{texts.world_of(2)}; {texts.waits_for_admission(1, 60.0)}"


def test_settle_s_of_the_job_replaces_the_measured_time() -> None:
    stage = a_loss(starts_in_s=2.0, settle_s=5.0)
    stage.join("d")
    assert passes(stage, 4.0) is Phase.RUNNING
    assert passes(stage, 1.5) is Phase.RESHAPING


def test_with_settle_s_of_0_a_replacement_is_admitted_at_once() -> None:
    stage = a_loss(starts_in_s=2.0, settle_s=0.0)
    assert halts(stage.join("d"))


def test_a_person_who_scales_up_does_not_wait() -> None:
    stage = a_loss(starts_in_s=2.0, spec=a_spec(workers=4))
    stage.join("d")
    assert passes(stage, 1.0) is Phase.RUNNING
    stage.happens(events.ScaleAsked(stage.now_s, 3))
    assert halts(stage.happens(events.ScaleAsked(stage.now_s, 4)))


def test_a_loss_and_a_scale_down_do_not_wait() -> None:
    stage = a_loss(starts_in_s=2.0)
    assert halts(stage.happens(events.ScaleAsked(stage.now_s, 1)))
    stage.parked("a", "b")
    stage.now_s += 2.0
    stage.ready(*stage.world)
    assert stage.phase is Phase.RUNNING
    stage.sees_gone("a")
    assert stage.phase is not Phase.RUNNING


def test_a_master_that_took_over_assumes_a_cost_for_the_world_it_found() -> None:
    stage = a_loss(starts_in_s=2.0)
    stage.job = adopted_job(stage.job.spec, stage.job.record, epoch=Epoch(2), at_s=stage.now_s)
    stage.reports(*stage.observations())
    stage.join("d")
    assert passes(stage, 55.0) is Phase.RUNNING
    assert passes(stage, 6.0) is Phase.RESHAPING


def test_trainers_with_the_sdk_wait_for_nothing_since_their_world_changes_in_place() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.now_s += 2.0
    stage.join("c")
    stage.attaches("c")
    assert stage.prepared is not None
