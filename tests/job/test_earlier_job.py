"""A second job with the name of an earlier one ignores the workers of the earlier one."""

from msgspec import structs
from msgspec.structs import replace

from controlplane.job import events
from controlplane.job.effects import JobEffect, TellCluster
from controlplane.job.learn_workers import knows
from controlplane.job.state import new_job
from messages.clusters import Presence, RemoveWorkers, WorkerObservation
from messages.ids import Epoch, Generation, WorkerId
from messages.records import Phase
from messages.workers import TrainerStatus, WorkerPhase, WorkerStatus
from tests.job.stage import JOB, Stage, a_spec, a_status, an_observation, assignments, released

OLD = WorkerId("old-1")
EARLIER, CURRENT = 1_000.5, 2_000.25


def a_stage() -> Stage:
    spec = a_spec(workers=2, at_least=2)
    return Stage(new_job(spec, epoch=Epoch(1), at_s=100.0, submitted_at=CURRENT))


def of_earlier_job(seq: int = 40) -> WorkerStatus:
    """A worker of the earlier job, with 500 steps of state, in a generation that the new job has not reached."""
    trainers = (TrainerStatus(local_rank=0, generation=Generation(7), done=500, active=True),)
    status = a_status(OLD, WorkerPhase.READY, seq=seq, generation=7, trainers=trainers)
    return structs.replace(status, submitted_at=EARLIER)


def removed(effects: list[JobEffect]) -> set[str]:
    commands = [effect.command for effect in effects if isinstance(effect, TellCluster)]
    return {worker for command in commands if isinstance(command, RemoveWorkers) for worker in command.workers}


def test_a_worker_of_an_earlier_job_is_told_to_go_each_time_it_speaks_and_is_no_worker_of_this_one() -> None:
    stage = a_stage()
    stage.join("w1")
    for seq in (40, 41):
        effects = stage.happens(events.WorkerSpoke(stage.now_s, of_earlier_job(seq)))
        assert (released(effects), removed(effects)) == ({OLD}, {OLD})
    assert set(stage.job.workers) == {"w1"}
    assert (stage.generation, stage.phase, stage.job.record.losses) == (0, Phase.WAITING, 0)
    assert (knows(stage.job, WorkerId("w1")), knows(stage.job, OLD)) == (True, False)


def test_the_new_world_is_made_as_if_the_earlier_job_had_never_been() -> None:
    stage = a_stage()
    stage.reports(an_observation(OLD, Presence.STARTING))
    stage.reports(WorkerObservation(OLD, JOB, Presence.ALIVE, status=of_earlier_job()))
    effects = stage.join("w1", "w2")
    [world, *_] = assignments(effects)
    assert (world.generation, [member.worker for member in world.members]) == (1, ["w1", "w2"])
    assert stage.runs("w1", "w2").world == {"w1": (0,), "w2": (1,)}


def test_a_forged_submission_does_not_end_a_worker_of_the_job() -> None:
    stage = a_stage().runs("w1", "w2")
    forged = structs.replace(a_status("w1", WorkerPhase.READY, seq=1_000), submitted_at=EARLIER)
    stage.happens(events.WorkerSpoke(stage.now_s, forged))
    assert (set(stage.job.workers), stage.job.record.losses, stage.job.doubtful.count) == ({"w1", "w2"}, 0, 1)


def test_a_job_whose_record_was_lost_believes_its_workers_when_it_was_submitted() -> None:
    job = new_job(a_spec(workers=2, at_least=2), epoch=Epoch(1), at_s=100.0, submitted_at=CURRENT)
    stage = Stage(replace(job, is_submission_known=False))
    for seq in (40, 41):
        stage.happens(events.WorkerSpoke(stage.now_s, of_earlier_job(seq)))
    assert (set(stage.job.workers), stage.job.record.submitted_at) == ({OLD}, EARLIER)


def test_workers_that_say_when_their_job_was_submitted_or_do_not_know_it_are_its_own() -> None:
    stage = a_stage()
    for worker, submitted_at in (("w1", CURRENT), ("w2", 0.0)):
        status = structs.replace(a_status(worker, WorkerPhase.IDLE), submitted_at=submitted_at)
        stage.happens(events.WorkerSpoke(stage.now_s, status))
    assert set(stage.job.workers) == {"w1", "w2"}
