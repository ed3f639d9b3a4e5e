"""Messages in a worker's name that cannot be true are ignored; worker and job continue."""

import pytest
from msgspec import structs
from msgspec.structs import replace

from controlplane.job import events
from controlplane.job.effects import TellCluster
from controlplane.job.state import adopted_job
from messages.bounds import GENERATIONS_AHEAD, NOTICE_AT_MOST_S, NUMBER_AT_MOST, SEQ_AHEAD
from messages.clusters import Presence, RemoveWorkers, WorkerObservation
from messages.ids import Epoch, Generation, WorkerId
from messages.records import Phase, encode_record
from messages.workers import SampleCertificate, TrainerStatus, WorkerPhase, WorkerStatus, WrittenCheckpoint
from tests.job.stage import JOB, Stage, a_spec, a_stage, a_status, reported

ABSURD = 2**53


def absurd_statuses() -> list[WorkerStatus]:
    """Impossible statuses of a worker whose job is at generation 1."""
    usual = a_status("a", WorkerPhase.PARKED, seq=50, generation=1)
    proof = SampleCertificate(ABSURD, ABSURD)
    trainers = [
        TrainerStatus(0, generation=Generation(ABSURD)),
        TrainerStatus(0, parked=Generation(ABSURD)),
        TrainerStatus(0, broken=Generation(ABSURD)),
        TrainerStatus(0, parking=Generation(ABSURD)),
        TrainerStatus(0, done=ABSURD),
        TrainerStatus(0, held=((0, ABSURD),)),
        TrainerStatus(0, certificate=proof),
        TrainerStatus(0, waiting=ABSURD),
        TrainerStatus(0, located=ABSURD),
    ]
    return [
        structs.replace(usual, generation=Generation(ABSURD)),
        structs.replace(usual, generation=Generation(1 + GENERATIONS_AHEAD + 1)),
        structs.replace(usual, seq=SEQ_AHEAD + 100),
        structs.replace(usual, pid=ABSURD),
        structs.replace(usual, step=NUMBER_AT_MOST + 1),
        structs.replace(usual, checkpoints=ABSURD),
        structs.replace(usual, checkpoint=WrittenCheckpoint(ABSURD, "/checkpoints", 1.0)),
        structs.replace(usual, notice_s=NOTICE_AT_MOST_S * 2),
        *(structs.replace(usual, trainers=(trainer,)) for trainer in trainers),
    ]


def knows_the_same(before: Stage, after: Stage) -> bool:
    ours, theirs = before.job, after.job
    return replace(ours, why="", doubtful=replace(ours.doubtful, count=0, by_worker={})) == replace(
        theirs, why="", doubtful=replace(theirs.doubtful, count=0, by_worker={})
    )


@pytest.mark.parametrize("status", absurd_statuses())
def test_a_status_that_cannot_be_true_teaches_nothing(status: WorkerStatus) -> None:
    stage, same = a_stage().runs("a", "b"), a_stage().runs("a", "b")
    effects = stage.happens(events.WorkerSpoke(stage.now_s, status))
    assert knows_the_same(same, stage)
    assert len(reported(effects, "message_ignored")) == len(effects) == 1
    assert not [each for each in effects if isinstance(each, TellCluster) and isinstance(each.command, RemoveWorkers)]
    assert stage.happens(events.WorkerSpoke(stage.now_s, status)) == [], "it is announced once"
    assert stage.job.doubtful.count == 2
    encode_record(stage.job.record)


@pytest.mark.parametrize("status", absurd_statuses())
def test_a_topology_with_such_a_status_still_shows_that_the_worker_is_there(status: WorkerStatus) -> None:
    stage = a_stage().runs("a", "b")
    stage.now_s += 3.0
    others = [observation for observation in stage.observations() if observation.worker != "a"]
    stage.reports(WorkerObservation(WorkerId("a"), JOB, Presence.ALIVE, status=status), *others)
    worker = stage.job.workers[WorkerId("a")]
    assert (worker.presence, worker.heard_s, worker.generation) == (Presence.ALIVE, stage.now_s, 1)
    stage.reports_status("a", WorkerPhase.READY)
    assert stage.phase is Phase.RUNNING


def test_a_notice_of_months_is_none() -> None:
    stage = a_stage().runs("a", "b")
    stage.happens(events.WorkerNoticeCame(stage.now_s, WorkerId("a"), 1e9, "node"))
    assert stage.job.workers[WorkerId("a")].noticed is None


def test_generations_that_a_dead_master_could_not_save_are_believed() -> None:
    stage = a_stage().runs("a", "b")
    stage.job = adopted_job(a_spec(), stage.job.record, epoch=Epoch(2), at_s=stage.now_s)
    stage.reports_status("a", WorkerPhase.PARKED, generation=5)
    assert stage.generation == 6


def test_a_job_that_lost_its_record_believes_its_workers() -> None:
    stage = a_stage()
    stage.join("a", "b", "c")
    assert stage.generation == 1
    fresh = a_stage(a_spec(workers=2))
    fresh.reports_status("a", WorkerPhase.IDLE, generation=70_000)
    fresh.join("b")
    assert fresh.generation == 70_001
