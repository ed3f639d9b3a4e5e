"""A restarted script that repeats steps: an event reports it, and the job's view warns meanwhile."""

from controlplane.jobs.progress import OLD_CHECKPOINT, ProgressTracker, event_of_fallback, fell_back, why_fell_back
from messages.ids import JobName
from messages.jobs import Launch
from messages.worlds import Progress
from tests.jobs.test_progress import a_rank, a_report

JOB = JobName("job")
PLAIN = Launch(script="train.py")


def a_step_range(generation: int, first: int, last: int) -> Progress:
    return a_report("w-a", generation, a_rank(0, first, last, first_at=0, last_at=1))


def a_tracker(*reports: Progress) -> ProgressTracker:
    tracker = ProgressTracker()
    for report in reports:
        tracker.learn(report)
    return tracker


def test_a_script_that_begins_at_step_0_again_is_told_with_what_to_do() -> None:
    tracker = a_tracker(a_step_range(1, 0, 56))
    fallen = fell_back(tracker.generations, a_step_range(2, 0, 3))
    assert fallen is not None
    event = event_of_fallback(JOB, fallen, why_fell_back(fallen, PLAIN, uses_sdk=False))
    assert event.kind == "progress_fell_back"
    assert (fallen.from_the_start, event.fields["first_step"], event.fields["reached"]) == (True, 0, 56)
    assert "step 0 " in event.text and "57 steps" in event.text
    assert "launch.restart_args" in event.why and "--restart-args" in event.why
    given = Launch(script="train.py", restart_args=("--resume",))
    assert "launch.restart_args" in why_fell_back(fallen, given, uses_sdk=False)
    assert "--restart-args" not in why_fell_back(fallen, given, uses_sdk=False)
    assert "checkpoints=" in why_fell_back(fallen, PLAIN, uses_sdk=True)


def test_a_script_that_resumed_from_a_checkpoint_repeats_what_came_after_it() -> None:
    tracker = a_tracker(a_step_range(1, 0, 30), a_step_range(2, 20, 56))
    fallen = fell_back(tracker.generations, a_step_range(3, 50, 51))
    assert fallen is not None
    event = event_of_fallback(JOB, fallen, why_fell_back(fallen, PLAIN, uses_sdk=False))
    assert (fallen.from_the_start, event.fields["first_step"], event.fields["reached"]) == (False, 50, 56)
    assert "step 50 " in event.text and "7 steps" in event.text
    assert event.why == OLD_CHECKPOINT


def test_a_script_that_repeats_nothing_did_not_fall_back() -> None:
    tracker = a_tracker(a_step_range(1, 0, 56))
    assert fell_back(tracker.generations, a_step_range(2, 57, 60)) is None
    assert fell_back((), a_step_range(1, 0, 3)) is None
