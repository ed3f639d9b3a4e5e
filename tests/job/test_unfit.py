"""Workers without the GPUs of the job: the job fails after some of them."""

from controlplane.job import events, texts
from messages.ids import WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from tests.job.stage import Stage, a_spec, a_stage, reported

WHY = "torch 2.13.0+cpu is a build without CUDA"


def is_unfit(stage: Stage, *workers: str) -> None:
    for worker in workers:
        stage.reports_status(worker, WorkerPhase.WARMING, generation=0)
        stage.happens(events.WorkerSaidLeft(stage.now_s, WorkerId(worker), WHY, is_unfit=True))


def test_a_job_whose_workers_all_turn_out_unfit_fails_with_their_sentence() -> None:
    stage = a_stage(a_spec(failures=2))
    is_unfit(stage, "a", "b")
    assert stage.phase is Phase.WAITING
    assert WHY in stage.job.why
    is_unfit(stage, "c")
    assert (stage.phase, stage.job.record.why) == (Phase.FAILED, texts.could_not_train(3, WHY))
    assert [(each.text, each.why) for each in reported(stage.effects, "worker_unfit")] == [
        (f"worker {name} cannot train", WHY) for name in "abc"
    ]


def test_one_worker_that_can_train_makes_good_for_those_before_it() -> None:
    stage = a_stage(a_spec(failures=1, at_least=2))
    is_unfit(stage, "a")
    stage.join("b")
    is_unfit(stage, "c")
    assert stage.phase is Phase.WAITING


def test_a_world_that_trains_is_not_ended_by_joining_workers_that_cannot() -> None:
    stage = a_stage(a_spec(workers=4, failures=1)).runs("a", "b")
    is_unfit(stage, "c", "d", "e")
    assert stage.phase is Phase.RUNNING


def test_a_worker_that_nobody_knows_counts_for_nothing() -> None:
    stage = a_stage(a_spec(failures=0))
    stage.happens(events.WorkerSaidLeft(stage.now_s, WorkerId("forged"), WHY, is_unfit=True))
    assert stage.phase is Phase.WAITING
