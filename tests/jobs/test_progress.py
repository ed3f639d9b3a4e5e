from msgspec import structs

from controlplane.jobs.progress import GENERATIONS_AT_MOST, GenerationProgress, ProgressTracker
from messages.ids import Generation, JobName, Rank, WorkerId
from messages.worlds import Progress, RankProgress, StepsCounted


def a_rank(
    rank: int,
    first: int,
    last: int,
    *,
    first_at: float,
    last_at: float,
    loss: float | None = None,
    samples: int = 0,
) -> RankProgress:
    return RankProgress(Rank(rank), first, last, loss, samples, first_at, last_at)


def a_report(worker: str, generation: int, *ranks: RankProgress) -> Progress:
    return Progress(JobName("job"), WorkerId(worker), Generation(generation), ranks)


def test_a_job_without_reports_shows_nothing() -> None:
    tracker = ProgressTracker()
    assert (tracker.step, tracker.loss, tracker.samples_per_s) == (None, None, None)
    assert tracker.generations == ()


def test_step_is_the_newest_and_loss_the_mean_over_ranks_that_have_it() -> None:
    tracker = ProgressTracker()
    tracker.learn(a_report("w-a", 1, a_rank(0, 1, 10, first_at=1, last_at=10, loss=2.0)))
    tracker.learn(a_report("w-b", 1, a_rank(1, 1, 11, first_at=1, last_at=11, loss=4.0)))
    assert (tracker.step, tracker.loss) == (11, 4.0)
    tracker.learn(a_report("w-c", 1, a_rank(2, 1, 11, first_at=1, last_at=11, loss=5.0)))
    assert tracker.loss == 4.5
    assert tracker.workers[WorkerId("w-a")].step == 10
    assert tracker.workers[WorkerId("w-b")].loss == 4.0


def test_a_loss_that_is_not_finite_hides_no_older_one_behind_it() -> None:
    tracker = ProgressTracker()
    finite = a_rank(0, 1, 10, first_at=1, last_at=10, loss=2.0)
    counted = StepsCounted(nonfinite=3, skipped=2)
    diverged = structs.replace(finite, first_step=11, last_step=11, loss=None, nonfinite=True, counted=counted)
    tracker.learn(a_report("w-a", 1, finite))
    tracker.learn(a_report("w-a", 1, diverged))
    assert (tracker.step, tracker.loss, tracker.is_nonfinite, tracker.counted) == (11, None, True, counted)
    assert tracker.workers[WorkerId("w-a")].nonfinite
    tracker.learn(a_report("w-a", 2, structs.replace(finite, first_step=12, last_step=12)))
    assert (tracker.loss, tracker.is_nonfinite, tracker.counted) == (2.0, False, counted)


def test_throughput_adds_up_over_ranks_and_counts_the_time_between_reports() -> None:
    tracker = ProgressTracker()
    for rank in (0, 1):
        tracker.learn(a_report(f"w-{rank}", 1, a_rank(rank, 1, 11, first_at=0, last_at=10, samples=110)))
    assert tracker.samples_per_s == 20.0
    for rank in (0, 1):
        tracker.learn(a_report(f"w-{rank}", 1, a_rank(rank, 12, 13, first_at=11, last_at=12, samples=60)))
    assert tracker.samples_per_s == 60.0


def test_a_new_generation_starts_from_its_own_reports() -> None:
    tracker = ProgressTracker()
    tracker.learn(a_report("w-a", 1, a_rank(0, 1, 50, first_at=0, last_at=50, loss=1.0, samples=500)))
    tracker.learn(a_report("w-b", 2, a_rank(0, 41, 42, first_at=60, last_at=61, samples=20)))
    assert tracker.step == 42
    assert tracker.loss is None
    assert tracker.workers[WorkerId("w-a")].step == 50


def test_a_late_report_of_an_old_generation_counts_only_there() -> None:
    tracker = ProgressTracker()
    tracker.learn(a_report("w-a", 1, a_rank(0, 1, 10, first_at=0, last_at=10, samples=100)))
    tracker.learn(a_report("w-a", 2, a_rank(0, 9, 9, first_at=20, last_at=20, samples=10)))
    tracker.learn(a_report("w-a", 1, a_rank(0, 11, 12, first_at=11, last_at=12, samples=20)))
    assert tracker.step == 9
    assert tracker.generations == (
        GenerationProgress(Generation(1), 1, 12, 120, 0, 12),
        GenerationProgress(Generation(2), 9, 9, 10, 20, 20),
    )


def test_what_is_kept_is_bounded() -> None:
    tracker = ProgressTracker()
    for generation in range(1, GENERATIONS_AT_MOST + 51):
        tracker.learn(a_report("w-a", generation, a_rank(0, 1, 1, first_at=0, last_at=0)))
    assert len(tracker.generations) == GENERATIONS_AT_MOST
    assert tracker.generations[0].generation == 51


def test_an_empty_report_teaches_nothing() -> None:
    tracker = ProgressTracker()
    tracker.learn(a_report("w-a", 7))
    assert tracker.generations == ()
