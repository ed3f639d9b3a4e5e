"""Ranks that others wait for: slow ones stay, silent and stalled ones are removed."""

from msgspec import structs

from controlplane.api.views import job_view
from controlplane.job import events, texts
from controlplane.job.effects import JobEffect, TellCluster
from controlplane.job.live import stalls
from controlplane.jobs.progress import ProgressTracker
from messages.api import PausedRank
from messages.clusters import RemoveWorkers
from messages.ids import Rank, WorkerId
from messages.jobs import JobSpec
from messages.records import Phase
from messages.workers import TrainerExit, WorkerPhase
from messages.worlds import EndStalled, Locate
from tests.job.live_stage import LiveStage, a_live_job, a_live_stage
from tests.job.stage import a_spec, halts, published, reported

STACK = 'File "train.py", line 12 in evaluate'

STEP = 5


def waits(stage: LiveStage, worker: str, *, overdue: bool = True, **changes: object) -> list[JobEffect]:
    """Reports that the worker's trainers wait for long in the all-reduce of the step."""
    changes = {"waiting": STEP, "overdue": overdue, "step_s": 0.1, **changes}
    return stage.tell(worker, *(structs.replace(trainer, **changes) for trainer in stage.trainers[worker]))


def enters(stage: LiveStage, *workers: str) -> None:
    """Reports that the all-reduce is complete."""
    for worker in workers:
        after = [structs.replace(t, waiting=None, overdue=False, done=STEP + 1) for t in stage.trainers[worker]]
        stage.tell(worker, *after)


def answers(stage: LiveStage, *workers: str, **changes: object) -> list[JobEffect]:
    """Answers the newest question: the trainers run."""
    assert stage.job.wait is not None
    changes = {"step_s": 0.1, "located": stage.job.wait.number, **changes}
    return [
        effect
        for worker in workers
        for effect in stage.tell(worker, *(structs.replace(t, **changes) for t in stage.trainers[worker]))
    ]


def passes(stage: LiveStage, seconds: float, *answering: str, **changes: object) -> list[JobEffect]:
    """Lets time pass; the core decides when it wants to, and these workers answer each question."""
    effects: list[JobEffect] = []
    until_s = stage.now_s + seconds
    while True:
        wake_at_s = stage.wake_at_s
        assert wake_at_s is not None and wake_at_s > stage.now_s
        if wake_at_s > until_s:
            stage.now_s = until_s
            return effects
        stage.now_s = wake_at_s
        woken = stage.happens(events.Ticked(stage.now_s))
        if published(woken, Locate):
            woken += answers(stage, *answering, **changes)
        effects += woken


def a_stalling_spec(stall_s: float | None = 10.0) -> JobSpec:
    spec = a_spec(workers=3)
    return structs.replace(spec, timeouts=structs.replace(spec.timeouts, stall_s=stall_s))


def a_waiting_job(stall_s: float | None = 10.0) -> LiveStage:
    """A job in which two ranks wait for the third, which runs."""
    stage = a_live_stage(a_stalling_spec(stall_s)).trains("a", "b", "c")
    waits(stage, "a")
    waits(stage, "b")
    answers(stage, "a", "b", "c")
    return stage


def test_a_rank_that_has_waited_long_has_everybody_asked_and_halts_nobody() -> None:
    stage = a_live_job("a", "b", "c")
    effects = waits(stage, "a")
    [question] = published(effects, Locate)
    assert question.generation == 1 and stage.job.wait is not None and question.number == stage.job.wait.number
    assert halts(effects) == [] and stage.phase is Phase.RUNNING


def test_a_rank_that_runs_is_waited_for_and_the_world_stays() -> None:
    stage = a_waiting_job(stall_s=60.0)
    effects = passes(stage, 50.0, "c")
    assert (stage.phase, stage.generation, stage.job.record.failures) == (Phase.RUNNING, 1, 0)
    assert 45 <= len(published(effects, Locate)) <= 55
    assert stage.job.why == stalls.waits_for_ranks([Rank(2)], 5)
    enters(stage, "a", "b", "c")
    assert stage.job.wait is None
    assert published(passes(stage, 5.0), Locate) == []
    assert (stage.phase, stage.generation, stage.job.why) == (Phase.RUNNING, 1, "a world of 3")


def test_a_rank_whose_worker_does_not_answer_is_removed_when_the_round_closes() -> None:
    stage = a_live_job("a", "b", "c")
    waits(stage, "a")
    answers(stage, "a", "b")
    effects = passes(stage, 0.39)
    assert len(published(effects, Locate)) == 3 and halts(effects) == []
    effects = passes(stage, 0.011)
    assert halts(effects)[0].generation == 2
    gone = "did not answer within 0.4 s, and the others wait for rank 2 in the all-reduce of step 5"
    assert stage.job.gone == {"c": gone}
    commands = [effect.command for effect in effects if isinstance(effect, TellCluster)]
    assert [command.workers for command in commands if isinstance(command, RemoveWorkers)] == [("c",)]
    stage.parks("a", "b")
    assert (stage.world, stage.job.record.losses, stage.job.record.failures) == ({"a": (0,), "b": (1,)}, 1, 0)


def test_a_rank_whose_trainer_is_stopped_while_its_agent_lives_is_removed_when_the_round_closes() -> None:
    stage = a_live_job("a", "b", "c")
    waits(stage, "a")
    answers(stage, "a", "b")
    stage.now_s += 0.01
    stage.tell("c", *stage.trainers["c"])
    assert halts(passes(stage, 0.4)) != []
    assert stage.job.gone[WorkerId("c")].startswith(stalls.TRAINER_STOPPED)
    assert "rank 2" in stage.job.gone[WorkerId("c")]


def test_a_rank_that_falls_silent_while_it_is_waited_for_is_removed_in_the_next_round() -> None:
    stage = a_waiting_job()
    passes(stage, 3.0, "a", "b", "c")
    assert stage.phase is Phase.RUNNING
    passes(stage, 1.5, "a", "b")
    assert stage.job.gone.keys() == {"c"}


def test_when_nobody_answers_it_is_rather_the_question_that_did_not_arrive() -> None:
    stage = a_live_job("a", "b", "c")
    waits(stage, "a")
    passes(stage, 3.0)
    assert (stage.phase, stage.job.gone) == (Phase.RUNNING, {})


def test_a_master_that_was_asleep_asks_again_and_judges_nobody() -> None:
    stage = a_live_job("a", "b", "c")
    waits(stage, "a")
    answers(stage, "a", "b")
    effects = stage.wait(30.0)
    assert len(published(effects, Locate)) == 1 and stage.job.gone == {}
    answers(stage, "a", "b", "c")
    passes(stage, 3.0, "a", "b", "c")
    assert (stage.phase, stage.generation) == (Phase.RUNNING, 1)


def test_an_answer_to_an_older_question_is_none() -> None:
    stage = a_waiting_job()
    passes(stage, 1.1, "a", "b")
    stage.tell("c", *stage.trainers["c"])
    passes(stage, 0.4)
    assert stage.job.gone.keys() == {"c"}


def test_all_ranks_in_an_all_reduce_that_does_not_complete_are_a_broken_world() -> None:
    stage = a_live_job("a", "b", "c")
    waits(stage, "a")
    waits(stage, "b")
    assert stage.phase is Phase.RUNNING
    [halt] = halts(waits(stage, "c"))
    assert halt.why == stalls.never_completes(5)
    stage.parks("a", "b", "c", waiting=None, overdue=False)
    assert stage.world == {"a": (0,), "b": (1,), "c": (2,)}
    assert (stage.job.record.failures, stage.job.record.losses) == (0, 0)


def test_the_last_to_enter_gives_the_all_reduce_its_time() -> None:
    stage = a_waiting_job()
    waits(stage, "c", overdue=False)
    effects = passes(stage, 30.0, "c")
    assert (stage.phase, stage.generation) == (Phase.RUNNING, 1)
    assert published(effects, EndStalled) == []


def test_a_rank_that_falls_silent_soon_after_it_has_entered_is_removed() -> None:
    stage = a_waiting_job()
    waits(stage, "c", overdue=False)
    passes(stage, 3.0, "a", "b")
    assert stage.job.gone.keys() == {"c"}


def test_one_that_joins_and_has_just_entered_does_not_break_the_world() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.join("c")
    stage.attaches("c")
    stage.enters("a", "b", "c")
    waits(stage, "a")
    waits(stage, "b")
    waits(stage, "c", waiting=0, overdue=False)
    answers(stage, "a", "b", "c")
    passes(stage, 3.0, "c")
    assert (stage.phase, stage.generation) == (Phase.RUNNING, 2)
    waits(stage, "c", waiting=0)
    assert stage.generation == 3


def test_one_that_waits_in_the_next_world_for_the_others_to_come_over_is_no_sign() -> None:
    stage = a_live_job("a", "b", wanted=3)
    stage.join("c")
    stage.attaches("c")
    stage.enters("c")
    assert published(waits(stage, "c", waiting=0), Locate) == []


def test_ranks_that_wait_in_different_steps_do_not_break_the_world() -> None:
    stage = a_live_job("a", "b")
    waits(stage, "a")
    waits(stage, "b", waiting=STEP + 1)
    assert stage.phase is Phase.RUNNING


def test_a_stalled_rank_is_ended_once_and_counts_as_one_failure_of_the_script() -> None:
    stage = a_waiting_job(stall_s=10.0)
    effects = passes(stage, 9.9, "a", "b", "c")
    assert published(effects, EndStalled) == []
    effects = passes(stage, 1.0, "a", "b", "c")
    [order] = published(effects, EndStalled)
    assert (order.generation, order.ranks) == (1, (2,))
    why = stalls.not_entered(5, 11.0)
    assert order.why.startswith(why.removesuffix("1 s"))
    ended = TrainerExit(Rank(2), signal="SIGKILL", stalled=why, error=STACK)
    effects = stage.tell("c", phase=WorkerPhase.ENDED, exits=(ended,))
    assert len(halts(effects)) == 1
    [event] = reported(effects, "trainer_failed")
    assert (event.fields["rank"], event.fields["worker"], event.why) == (2, "c", STACK)
    assert event.text.endswith(texts.how_it_ended(ended)) and why in event.text
    stage.parks("a", "b", waiting=None, overdue=False)
    stage.tell("c", phase=WorkerPhase.PARKED)
    assert (stage.world, stage.job.record.failures, stage.job.record.losses) == ({"a": (0,), "b": (1,)}, 1, 0)


def test_a_job_that_may_not_fail_ends_with_the_stack_of_its_stalled_rank() -> None:
    spec = structs.replace(a_stalling_spec(), failures=a_spec(failures=0).failures)
    stage = a_live_stage(spec).trains("a", "b")
    ended = TrainerExit(Rank(1), signal="SIGKILL", stalled="it hangs", error="in evaluate\nin main")
    stage.tell("b", phase=WorkerPhase.ENDED, exits=(ended,))
    stage.parks("a")
    effects = stage.tell("b", phase=WorkerPhase.PARKED)
    [end] = reported(effects, "job_failed")
    assert end.why == f"{texts.describe_exit(ended)}; {texts.failures_allowed(0)}\n{ended.error}"


def test_a_stalled_rank_is_asked_to_end_until_it_has() -> None:
    stage = a_waiting_job(stall_s=10.0)
    effects = passes(stage, 15.0, "a", "b", "c")
    assert len(published(effects, EndStalled)) >= 3


def test_a_paused_rank_is_never_stalled_and_has_its_time_again_when_it_is_back() -> None:
    stage = a_waiting_job(stall_s=10.0)
    assert published(passes(stage, 25.0, "a", "b", "c", paused="evaluating"), EndStalled) == []
    assert stage.job.why == stalls.waits_for_ranks([Rank(2)], 5, "evaluating") and "(evaluating)" in stage.job.why
    assert published(passes(stage, 9.0, "a", "b", "c", paused=""), EndStalled) == []
    assert published(passes(stage, 3.0, "a", "b", "c"), EndStalled) != []
    assert stage.generation == 1


def test_a_paused_rank_is_shown_to_people() -> None:
    stage = a_live_job("a", "b")
    stage.tell("b", *(structs.replace(t, paused="evaluating", paused_at=50.0) for t in stage.trainers["b"]))
    shown = [worker.paused for worker in job_view(stage.job, ProgressTracker(), stage.now_s).workers]
    assert shown == [(), (PausedRank(Rank(1), "evaluating", 50.0),)]


def test_each_rank_that_enters_gives_the_others_their_time_again() -> None:
    stage = a_live_stage(a_stalling_spec(10.0)).trains("a", "b", "c")
    waits(stage, "a")
    answers(stage, "a", "b", "c")
    effects = passes(stage, 8.0, "a", "b", "c")
    waits(stage, "b", overdue=False)
    effects += passes(stage, 9.0, "a", "b", "c")
    assert published(effects, EndStalled) == []
    [order, *_] = published(passes(stage, 3.0, "a", "b", "c"), EndStalled)
    assert order.ranks == (2,)


def test_without_a_number_in_the_job_file_a_stall_takes_a_minute_or_twenty_steps() -> None:
    stage = a_waiting_job(stall_s=None)
    assert published(passes(stage, 59.0, "c"), EndStalled) == []
    assert published(passes(stage, 4.0, "c"), EndStalled) != []
    slow = a_waiting_job(stall_s=None)
    waits(slow, "a", step_s=3.5)
    assert published(passes(slow, 69.0, "c"), EndStalled) == []
    assert published(passes(slow, 4.0, "c"), EndStalled) != []


def test_a_rank_that_has_not_measured_its_steps_may_compile_for_ten_minutes() -> None:
    stage = a_waiting_job(stall_s=None)
    answers(stage, "c", step_s=0.0)
    assert published(passes(stage, 70.0, "c", step_s=0.0), EndStalled) == []
    assert stage.phase is Phase.RUNNING


def test_a_prepared_world_is_not_given_up_while_a_slow_rank_keeps_the_others_from_it() -> None:
    stage = a_waiting_job(stall_s=200.0)
    stage.happens(events.ScaleAsked(stage.now_s, 2))
    assert stage.prepared is not None
    passes(stage, 25.0, "c")
    enters(stage, "a", "b", "c")
    passes(stage, 5.0)
    assert (stage.phase, stage.generation) == (Phase.RUNNING, 1)
    assert stage.prepared is not None


def test_a_notice_during_a_long_wait_ends_in_a_repair_before_its_deadline() -> None:
    stage = a_waiting_job(stall_s=200.0)
    stage.notices("a", 10.0)
    assert stage.prepared is not None
    effects = passes(stage, 9.0, "a", "b", "c")
    assert halts(effects) == []
    assert halts(passes(stage, 0.6, "a", "b", "c")) != []


def test_a_survivor_that_is_slow_to_come_into_a_repaired_world_is_waited_for() -> None:
    stage = a_live_stage(a_stalling_spec(200.0)).trains("a", "b", "c")
    stage.sees_gone("a")
    stage.parks("b", "c")
    stage.enters("b")
    waits(stage, "b")
    answers(stage, "b", "c")
    passes(stage, 25.0, "c")
    assert (stage.phase, stage.generation) == (Phase.FORMING, 2)
    stage.enters("c")
    assert (stage.phase, stage.generation) == (Phase.RUNNING, 2)


def test_a_successor_asks_again_and_removes_nobody_that_answers() -> None:
    heir = a_waiting_job().heir()
    effects = heir.reports(*heir.observations())
    assert halts(effects) == []
    for worker in ("a", "b", "c"):
        effects += heir.tell(worker, *heir.trainers[worker])
    assert published(effects, Locate) != []
    answers(heir, "a", "b", "c")
    passes(heir, 5.0, "a", "b", "c")
    assert (heir.phase, heir.generation) == (Phase.RUNNING, 1)
