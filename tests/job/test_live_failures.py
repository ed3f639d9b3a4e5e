"""Scripts with the SDK that fail by themselves."""

from msgspec import structs

from controlplane.job import texts
from messages.ids import Generation, WorkerId
from messages.records import Phase
from messages.workers import Fallen, TrainerExit, WorkerPhase
from tests.job.live_stage import LiveStage, a_live_job, a_live_stage
from tests.job.stage import a_spec, clean, failed, reported


def a_halted_job(allowed: int = 2) -> LiveStage:
    """A halted job: rank 0 noticed that rank 1, on worker b, is gone."""
    stage = a_live_stage(a_spec(workers=2, failures=allowed)).trains("a", "b")
    stage.sign("a")
    assert stage.phase is Phase.RESHAPING
    return stage


def early(rank: int) -> TrainerExit:
    return structs.replace(clean(rank), early=True)


def test_one_whose_end_others_noticed_first_has_failed_all_the_same() -> None:
    stage = a_halted_job()
    effects = stage.falls("b", failed(1, "a bug"))
    assert (stage.job.record.failures, stage.job.record.losses) == (1, 0)
    assert [(said.fields["rank"], said.fields["worker"]) for said in reported(effects, "trainer_failed")] == [(1, "b")]
    assert all(texts.how_it_ended(failed(1)) in said.text for said in reported(effects, "trainer_failed"))
    assert stage.world == {"a": (0,)}


def test_also_if_its_agent_reported_the_end_before_it_heard_of_the_halt() -> None:
    stage = a_halted_job()
    stage.tell("b", phase=WorkerPhase.ENDED, exits=(failed(1, "a bug"),))
    stage.tell("b", phase=WorkerPhase.PARKED)
    stage.parks("a")
    assert (stage.job.record.failures, stage.world) == (1, {"a": (0,)})


def test_a_crash_by_a_signal_counts_like_any_other_failure() -> None:
    stage = a_halted_job()
    stage.tell("b", phase=WorkerPhase.ENDED, exits=(structs.replace(failed(1), code=None, signal="SIGSEGV"),))
    stage.tell("b", phase=WorkerPhase.PARKED)
    stage.parks("a")
    assert (stage.job.record.failures, stage.world) == (1, {"a": (0,)})


def test_a_stalled_rank_counts_also_if_another_worker_is_lost_in_the_same_round() -> None:
    stage = a_live_stage(a_spec(workers=3, failures=2)).trains("a", "b", "c")
    stage.sign("a")
    stage.sees_gone("c")
    stage.falls("b", structs.replace(failed(1), code=None, signal="SIGKILL", stalled="it has not entered"))
    stage.parks("a")
    assert (stage.job.record.failures, stage.world) == (1, {"a": (0,)})


def test_and_the_job_fails_if_that_was_one_too_many() -> None:
    stage = a_halted_job(allowed=0)
    stage.falls("b", failed(1, "a bug"))
    why = f"{texts.describe_exit(failed(1))}; {texts.failures_allowed(0)}"
    assert (stage.phase, stage.job.why) == (Phase.FAILED, why)


def test_of_an_earlier_halt_it_teaches_nothing() -> None:
    stage = a_halted_job()
    stale = (Fallen(Generation(1), 0, failed(1)),)
    stage.tell("b", phase=WorkerPhase.PARKED, generation=stage.generation, fallen=stale)
    assert stage.job.record.failures == 0


def test_who_ends_with_0_while_others_still_train_has_failed_too() -> None:
    stage = a_halted_job()
    stage.falls("b", early(1))
    assert (stage.job.record.failures, stage.world) == (1, {"a": (0,)})


def test_also_if_its_end_was_heard_before_anybody_missed_it() -> None:
    stage = a_live_job("a", "b")
    stage.tell("b", phase=WorkerPhase.ENDED, exits=(early(1),))
    stage.sign("a")
    stage.tell("b", phase=WorkerPhase.PARKED)
    assert (stage.job.record.failures, stage.world) == (1, {"a": (0,)})


def test_if_all_end_early_they_wanted_to() -> None:
    stage = a_live_job("a", "b")
    stage.tell("b", phase=WorkerPhase.ENDED, exits=(early(1),))
    assert stage.phase is Phase.RUNNING
    stage.tell("a", phase=WorkerPhase.ENDED, exits=(early(0),))
    assert (stage.phase, stage.job.record.failures) == (Phase.SUCCEEDED, 0)


def test_one_that_fails_again_and_again_waits_longer_each_time() -> None:
    stage = a_halted_job(allowed=5)
    stage.falls("b", failed(1))
    barred = stage.job.failures.barred[WorkerId("b")]
    stage.attaches("b")
    stage.tell("b", *(structs.replace(trainer, active=True) for trainer in stage.trainers["b"]))
    assert stage.job.failures.barred[WorkerId("b")] == barred
    again = (Fallen(Generation(stage.generation + 1), 0, failed(1)),)
    stage.tell("b", phase=WorkerPhase.PARKED, fallen=again)
    assert stage.job.failures.barred[WorkerId("b")].until_s > barred.until_s
