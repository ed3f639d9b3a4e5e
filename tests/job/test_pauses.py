"""A job that has reached its budget ends its world, releases its workers and waits; with more budget it continues."""

from controlplane.job import events, texts
from controlplane.job.effects import JobEffect, SaveRecord
from controlplane.job.state import adopted_job
from controlplane.job.stopping import checkpoint_text, default_grace_s
from messages.criteria import WhenSpent
from messages.ids import Epoch, WorkerId
from messages.records import Phase
from messages.worlds import Invite, Release
from tests.job.live_stage import LiveStage, a_live_stage
from tests.job.stage import (
    Stage,
    a_spec,
    a_stage,
    assignments,
    clean,
    failed,
    halts,
    kept,
    published,
    released,
    reported,
)

WHY = "9.9000 of 10.0000 USD are spent"


def pauses(stage: Stage, grace_s: float | None = None) -> list[JobEffect]:
    return stage.happens(events.BudgetReached(stage.now_s, WhenSpent.PAUSE, WHY, stage.job.record, grace_s))


def continues(stage: Stage) -> list[JobEffect]:
    return stage.happens(events.BudgetFreed(stage.now_s, WhenSpent.PAUSE))


def a_paused_stage() -> Stage:
    stage = a_stage().runs("a", "b")
    pauses(stage)
    stage.parked("a", "b")
    return stage


def test_a_pause_ends_the_world_first_and_lets_the_workers_go_after() -> None:
    stage = a_stage().runs("a", "b")
    effects = pauses(stage)
    assert [halt.why for halt in halts(effects)] == [WHY]
    assert reported(effects, "job_paused")[0].why == WHY
    assert released(effects) == set() and kept(effects) == []
    effects = stage.parked("a", "b")
    assert stage.phase is Phase.WAITING
    assert released(effects) == {"a", "b"} and kept(effects) == [0]
    assert all(release.is_last for release in published(effects, Release))
    assert stage.job.why == texts.waits_for_budget(WHY, has_trained=True)


def test_workers_that_leave_a_paused_job_are_no_losses() -> None:
    stage = a_paused_stage()
    stage.sees_gone("a")
    stage.happens(events.WorkerSaidLeft(stage.now_s, WorkerId("b"), "released"))
    assert stage.job.record.losses == 0
    assert stage.phase is Phase.WAITING


def test_a_paused_job_makes_no_world_of_workers_that_come_late() -> None:
    stage = a_paused_stage()
    effects = stage.join("c", "d", "e")
    assert assignments(effects) == [] and released(effects) >= {"c", "d", "e"}
    assert stage.phase is Phase.WAITING


def test_a_job_that_may_continue_asks_for_workers_and_makes_a_new_world() -> None:
    stage = a_paused_stage()
    for worker in ("a", "b"):
        stage.sees_gone(worker)
    effects = continues(stage)
    assert reported(effects, "job_continued")
    stage.reports(keeps=0)
    assert kept(stage.wait(1.0)) == [3]
    stage.runs("c", "d", "e")
    assert (stage.generation, stage.world) == (2, {"c": (0,), "d": (1,), "e": (2,)})
    assert stage.job.record.failures == 0


def test_a_master_that_takes_over_a_paused_job_leaves_it_paused() -> None:
    record = a_paused_stage().job.record
    stage = Stage(adopted_job(a_spec(), record, epoch=Epoch(2), at_s=200.0), now_s=200.0)
    stage.reports(keeps=0)
    assert kept(stage.wait(30.0)) == []
    assert (stage.phase, stage.job.workers) == (Phase.WAITING, {})
    assert stage.job.record.paused is not None
    assert stage.job.why == texts.waits_for_budget(stage.job.record.paused, has_trained=record.formed > 0)


def test_a_master_that_takes_over_in_the_middle_of_a_pause_finishes_it() -> None:
    running = a_stage().runs("a", "b")
    pauses(running)
    stage = Stage(adopted_job(a_spec(), running.job.record, epoch=Epoch(2), at_s=200.0), now_s=200.0)
    effects = stage.parked("a", "b")
    assert stage.phase is Phase.WAITING
    assert released(effects) == {"a", "b"}


def test_a_pause_is_saved_again_after_an_unconfirmed_save_of_what_came_between() -> None:
    """The unconfirmed record may be stored, although the job has returned to the record before it."""
    stage = a_stage()
    pauses(stage)
    paused = stage.job.record
    stage.save_at_once = False
    continues(stage)
    stage.happens(events.SaveFailed(stage.now_s, "no acknowledgement"))
    pauses(stage)
    assert stage.job.record == paused
    assert [effect.record for effect in stage.wait(1.0) if isinstance(effect, SaveRecord)] == [paused]


def test_a_paused_job_can_be_stopped() -> None:
    stage = a_paused_stage()
    stage.happens(events.StopAsked(stage.now_s, "stopped by a person"))
    assert stage.phase is Phase.STOPPED


def test_a_job_whose_ranks_all_ended_while_it_was_to_pause_has_succeeded() -> None:
    stage = a_stage().runs("a", "b")
    stage.exits("a", clean(0))
    pauses(stage)
    stage.exits("b", clean(1))
    stage.parked("a", "b")
    assert stage.phase is Phase.SUCCEEDED


def test_ranks_that_are_ended_by_a_pause_have_not_failed() -> None:
    stage = a_stage(a_spec(failures=0)).runs("a", "b")
    pauses(stage)
    stage.exits("a", failed(0, peer_lost=True))
    stage.parked("a", "b")
    assert (stage.phase, stage.job.record.failures) == (Phase.WAITING, 0)


def test_a_job_that_has_no_world_yet_pauses_at_once() -> None:
    stage = a_stage()
    stage.stores_start = False
    stage.join("a", "b", "c")
    forming, _ = stage.phase, pauses(stage)
    assert (forming, stage.phase) == (Phase.FORMING, Phase.WAITING)
    assert stage.job.why == texts.waits_for_budget(WHY, has_trained=False)


def test_a_budget_that_stops_the_job_says_so() -> None:
    stage = a_stage().runs("a")
    stage.happens(events.BudgetReached(stage.now_s, WhenSpent.STOP, WHY, stage.job.record))
    effects = stage.parked("a")
    assert stage.phase is Phase.STOPPED
    assert reported(effects, "job_stopped")[0].why == f"{texts.budget_spent(WHY)}; {checkpoint_text(None)}"


def test_without_machines_on_demand_the_world_continues() -> None:
    stage = a_stage().runs("a", "b")
    effects = stage.happens(events.BudgetReached(stage.now_s, WhenSpent.ON_DEMAND_OFF, WHY, stage.job.record))
    assert halts(effects) == [] and reported(effects, "on_demand_off")
    assert (stage.phase, stage.job.record.spot_only) == (Phase.RUNNING, WHY)
    stage.happens(events.BudgetFreed(stage.now_s, WhenSpent.ON_DEMAND_OFF))
    assert stage.job.record.spot_only is None


def test_a_raised_budget_is_kept_in_the_record() -> None:
    stage = a_stage()
    effects = stage.happens(events.BudgetRaised(stage.now_s, 25.0))
    assert stage.job.storage.saved is not None and stage.job.storage.saved.max_usd_total == 25.0
    assert "25.0 USD" in reported(effects, "budget_raised")[0].text


def a_parked_live_stage() -> LiveStage:
    stage = a_live_stage().trains("a", "b", "c", done=7)
    pauses(stage)
    stage.parks("a", "b", "c")
    return stage


def test_a_pause_has_the_grace_of_the_longest_steps_and_the_next_one_its_own() -> None:
    stage = a_live_stage().trains("a", "b", "c", done=7)
    assert default_grace_s(stage.job, longest_step_s=200.0) == 400.0
    assert default_grace_s(stage.job, longest_step_s=0.1) == 30.0
    assert default_grace_s(stage.job, longest_step_s=1e9) == 86_400.0
    assert [halt.stop_grace_s for halt in halts(pauses(stage, 400.0))] == [400.0]
    continues(stage)
    assert stage.job.record.stop_grace_s is None


def test_trainers_that_live_on_are_let_go_too_and_nobody_is_invited() -> None:
    stage = a_live_stage().trains("a", "b", "c", done=7)
    assert [(halt.ends, halt.stop_grace_s) for halt in halts(pauses(stage))] == [(True, 30.0)]
    effects = stage.ends("a", "b", "c")
    assert released(effects) == {"a", "b", "c"}
    assert published(effects + stage.wait(1.0), Invite) == []


def test_trainers_that_are_still_there_when_the_budget_is_raised_continue_from_what_they_have() -> None:
    stage = a_parked_live_stage()
    continues(stage)
    assert stage.phase is Phase.FORMING
    assert (stage.live.entry, stage.live.resume) == ("repair", 7)


def test_a_pause_in_the_middle_of_a_hand_over_gives_up_the_prepared_world() -> None:
    stage = a_live_stage(a_spec(workers=3)).trains("a", "b", "c")
    stage.happens(events.ScaleAsked(stage.now_s, 2))
    assert stage.prepared is not None
    pauses(stage)
    stage.ends("a", "b", "c")
    assert stage.phase is Phase.WAITING and stage.prepared is None
    assert stage.job.record.paused == WHY
