"""What a script learns about its restarts: their arguments and their number."""

from controlplane.job import events
from controlplane.job.state import adopted_job
from messages.ids import Epoch
from messages.jobs import Launch
from messages.records import Phase
from messages.workers import WorkerPhase
from messages.worlds import Assignment
from tests.job.live_stage import a_live_stage
from tests.job.stage import Stage, a_spec, a_stage, failed, reported

LAUNCH = Launch(script="train.py", args=("--lr=1",), restart_args=("--resume",))
FIRST, AGAIN = ("--lr=1",), ("--lr=1", "--resume")


def start_of(stage: Stage) -> tuple[tuple[str, ...], int]:
    world = stage.job.record.assignment
    assert isinstance(world, Assignment)
    return world.launch.args, world.restarts


def test_the_first_start_gets_no_restart_arguments() -> None:
    assert start_of(a_stage(a_spec(launch=LAUNCH)).runs("a", "b", "c")) == (FIRST, 0)


def test_every_start_after_a_loss_or_a_failure_gets_them_and_is_counted() -> None:
    stage = a_stage(a_spec(launch=LAUNCH)).runs("a", "b", "c")
    stage.sees_gone("c")
    stage.parked("a", "b")
    assert start_of(stage) == (AGAIN, 1)
    stage.ready("a", "b")
    stage.exits("a", failed(0, "ValueError"))
    stage.parked("a", "b")
    stage.wait(1.5)
    assert start_of(stage) == (AGAIN, 2)
    world = stage.job.record.assignment
    assert world is not None
    assert world.restart_count == 1


def test_a_world_that_never_ran_makes_no_restart() -> None:
    stage = a_stage(a_spec(launch=LAUNCH))
    stage.join("a", "b", "c")
    stage.sees_gone("c")
    stage.parked("a", "b")
    assert start_of(stage) == (FIRST, 0)


def test_the_next_master_knows_that_the_script_has_run() -> None:
    stage = a_stage(a_spec(launch=LAUNCH)).runs("a", "b", "c")
    stage.job = adopted_job(stage.job.spec, stage.job.record, epoch=Epoch(2), at_s=stage.now_s)
    stage.reports(*stage.observations())
    stage.sees_gone("c")
    stage.parked("a", "b")
    assert start_of(stage) == (AGAIN, 1)


def test_where_a_checkpoint_path_is_given_a_restart_before_the_first_checkpoint_has_nothing_to_resume_from() -> None:
    launch = Launch(script="train.py", args=("--lr=1",), restart_args=("--resume",), checkpoint_path="out")
    stage = a_stage(a_spec(launch=launch)).runs("a", "b", "c")
    stage.sees_gone("c")
    stage.parked("a", "b")
    assert start_of(stage) == (FIRST, 1)
    (event,) = reported(stage.effects, "no_checkpoint_seen")
    assert event.text.endswith(" out")
    assert "launch.restart_args" in event.why
    stage.ready("a", "b")
    stage.reports_status("a", WorkerPhase.READY, checkpoints=1)
    stage.sees_gone("b")
    stage.parked("a")
    assert start_of(stage) == (AGAIN, 2)
    assert reported(stage.effects, "no_checkpoint_seen") == [event]


def test_trainers_that_live_through_a_change_are_not_restarted_and_those_that_join_get_what_the_others_got() -> None:
    stage = a_live_stage(a_spec(launch=LAUNCH)).trains("a", "b", "c")
    stage.sees_gone("c")
    stage.parks("a", "b")
    assert stage.live.resume
    assert start_of(stage) == (FIRST, 0)


def test_trainers_with_the_sdk_that_all_start_again_get_them() -> None:
    stage = a_live_stage(a_spec(workers=2, launch=LAUNCH)).trains("a", "b")
    stage.sees_gone("a")
    stage.sees_gone("b")
    stage.happens(events.Ticked(stage.now_s))
    stage.join("c", "d")
    assert stage.phase is Phase.FORMING
    assert start_of(stage) == (AGAIN, 1)
