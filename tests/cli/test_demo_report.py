"""Each claim of the demonstration's report turns red when the facts contradict it."""

from dataclasses import replace

import pytest

from messages.api import ProgressLine
from messages.ids import Generation, WorkerId
from messages.worlds import RankProgress
from tests.cli.demo_facts import A_KILL, BATCH, FULL_AGAIN, a_run, trained
from tradewind.cli.demo.checks import CLAIMS
from tradewind.cli.demo.facts import Facts, Formed
from tradewind.cli.demo.report import report_on


def test_a_run_that_keeps_every_promise_passes_every_check() -> None:
    report = report_on(a_run())
    assert report.ok
    assert report.failed_checks == ()
    assert report.checks == tuple(CLAIMS)


def test_the_report_counts_what_happened() -> None:
    report = report_on(a_run())
    assert (report.steps, report.samples) == (60, 60 * BATCH)
    assert [(world.world_size, world.first_step, world.last_step) for world in report.generations] == [
        (4, 0, 23),
        (3, 20, 35),
        (4, 30, 59),
    ]
    assert [world.why for world in report.generations] == ["4 workers ready", "w2 was lost", "w5 joined"]
    assert [(kill.worker, kill.after_step) for kill in report.kills] == [("w2", 23)]
    assert [(joined.worker, joined.rank) for joined in report.joins] == [("w5", 3)]
    assert [pause.pause_s for pause in report.pauses] == [pytest.approx(1.7), pytest.approx(2.5)]
    assert [pause.repeated_steps for pause in report.pauses] == [4, 6]
    assert (report.repeated_steps, report.repeated_samples) == (10, 10 * BATCH)
    assert (report.loss_first, report.loss_last, report.total_s) == (4.0, 2.0, 12.3)


def failed(facts: Facts) -> str:
    """The one claim that fails, with its sentence."""
    report = report_on(facts)
    assert not report.ok
    missing = [claim for claim in CLAIMS if claim not in report.checks]
    assert len(missing) == 1, report.failed_checks
    return f"{missing[0]}: {'; '.join(report.failed_checks)}"


def test_a_job_that_did_not_succeed_is_told() -> None:
    assert failed(replace(a_run(), phase="failed", why="rank 0 exited with 1")) == (
        "the job succeeded: the job ended as 'failed' (rank 0 exited with 1), not as succeeded"
    )


def test_a_missing_step_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w4", range(20, 36), from_s=104.0, loss=3.0),
        *trained(3, "w1 w3 w4 w5", range(30, 57), from_s=108.0, loss=2.0),
    ]
    assert failed(a_run(progress=progress)) == (
        "every step was completed: 3 of 60 steps were never completed, the first is 57"
    )


def test_a_step_beyond_the_last_is_told() -> None:
    extra = trained(3, "w1 w3 w4 w5", range(60, 61), from_s=111.0)
    assert "step 60 was reported, but the last one is 59" in failed(a_run(progress=[*a_run().progress, *extra]))


def test_a_rank_held_by_two_workers_is_told() -> None:
    twice = replace_worker(trained(3, "w1", range(30, 31), from_s=108.0), "w4")
    sentence = failed(a_run(progress=[*a_run().progress, *without_samples(twice)]))
    assert "rank 0 of generation 3 was held by w1 and w4" in sentence


def replace_worker(told: list[ProgressLine], worker: str) -> list[ProgressLine]:
    return [
        ProgressLine(at=one.at, worker=WorkerId(worker), generation=one.generation, ranks=one.ranks) for one in told
    ]


def without_samples(told: list[ProgressLine]) -> list[ProgressLine]:
    return [
        ProgressLine(
            at=one.at,
            worker=one.worker,
            generation=one.generation,
            ranks=tuple(
                RankProgress(rank.rank, rank.first_step, rank.last_step, rank.loss, 0, rank.first_at, rank.last_at)
                for rank in one.ranks
            ),
        )
        for one in told
    ]


def test_a_rank_that_never_reported_is_told() -> None:
    silent = [one for one in a_run().progress if not (one.generation == FULL_AGAIN and one.worker == "w4")]
    assert "generation 3 has ranks 0…3, but ranks 0, 1, 3 reported steps" in failed(a_run(progress=silent))


def test_a_world_that_nobody_announced_is_told() -> None:
    facts = a_run()
    report = report_on(replace(facts, formed=facts.formed[1:]))
    assert "generation 1 trained, but was never announced" in report.failed_checks


def test_a_batch_that_was_not_whole_is_told() -> None:
    facts = a_run()
    assert "a step of generation 1 had 48 samples of 50" in failed(
        replace(facts, promise=replace(facts.promise, global_batch=50))
    )


def test_a_run_without_a_kill_proves_nothing() -> None:
    assert failed(a_run(kills=())) == "the killed worker never came back: no worker was killed"


def test_processes_that_survived_the_kill_are_told() -> None:
    sentence = failed(a_run(kills=(replace(A_KILL, survived=(4711, 4712)),)))
    assert "processes 4711, 4712 of the killed worker w2 are still there" in sentence


def test_a_killed_worker_in_a_later_world_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w4", range(20, 36), from_s=104.0, loss=3.0),
        *trained(3, "w1 w2 w4 w5", range(30, 60), from_s=108.0, loss=2.0),
    ]
    assert failed(a_run(progress=progress)) == (
        "the killed worker never came back: the killed worker w2 holds a rank in generation 3"
    )


def test_a_run_that_never_trained_in_the_smaller_world_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(3, "w1 w3 w4 w5", range(20, 60), from_s=108.0, loss=2.0),
    ]
    assert "no step was completed in a world of 3 after w2 was killed" in failed(a_run(progress=progress))


def test_a_run_that_never_grew_again_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w5", range(20, 60), from_s=104.0, loss=2.0),
    ]
    assert "no step was completed in a world of 4 again after w2 was killed" in failed(a_run(progress=progress))


def test_a_loss_without_a_replacement_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w4", range(20, 60), from_s=104.0, loss=2.0),
    ]
    assert "no new worker held a rank after w2 was killed" in report_on(a_run(progress=progress)).failed_checks


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        (range(10, 36), "generation 2 repeated 14 steps, but every 10 there is a checkpoint"),
        (range(21, 36), "generation 2 began at step 21, where no checkpoint was"),
        (range(30, 36), "generation 2 left out 6 steps after step 23"),
    ],
)
def test_a_resume_that_no_checkpoint_explains_is_told(steps: range, sentence: str) -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w4", steps, from_s=104.0, loss=3.0),
        *trained(3, "w1 w3 w4 w5", range(30, 60), from_s=108.0, loss=2.0),
    ]
    assert sentence in report_on(a_run(progress=progress)).failed_checks


def test_a_loss_that_did_not_fall_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w4", range(20, 36), from_s=104.0, loss=3.0),
        *trained(3, "w1 w3 w4 w5", range(30, 60), from_s=108.0, loss=4.5),
    ]
    assert failed(a_run(progress=progress)) == "the loss fell: the loss did not fall: 4.0000 at first, 4.5000 at last"


def test_a_process_left_behind_is_told() -> None:
    sentence = failed(replace(a_run(), left_behind=("4711 python -m tradewind worker",)))
    assert "1 processes were left behind: 4711 python -m tradewind worker" in sentence


def test_a_run_that_reported_nothing_fails_without_an_error_of_its_own() -> None:
    report = report_on(a_run(progress=[]))
    assert not report.ok
    assert "no loss was reported" in report.failed_checks
    assert report.pauses == ()


def test_a_world_halted_within_its_first_step_need_not_be_heard_of_from_every_rank() -> None:
    brief = trained(2, "w1 w3", range(20, 21), from_s=104.0)
    after = trained(4, "w1 w3 w4", range(20, 36), from_s=105.0)
    end = trained(5, "w1 w3 w4 w5", range(30, 60), from_s=108.0)
    facts = a_run(progress=[*trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0), *brief, *after, *end])
    formed = (*facts.formed[:2], Formed(Generation(4), 3, "again"), Formed(Generation(5), 4, "w5 joined"))
    assert report_on(replace(facts, formed=formed)).ok
