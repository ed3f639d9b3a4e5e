import pytest

from controlplane.job import events
from controlplane.jobs.ingest import ForJob, Refused, fact_of, progress_of, topology_of
from messages import subjects
from messages.clusters import ClusterHeartbeat
from messages.ids import ClusterName, Generation, JobName, WorkerId
from messages.workers import WorkerJoined, WorkerLeft, WorkerNoticed, WorkerPhase, WorkerStatus
from messages.worlds import GatheredProgress, Halt, Progress

CLUSTER, WORKER, JOB = ClusterName("local"), WorkerId("w1-0001"), JobName("job")
STATUS = WorkerStatus(WORKER, CLUSTER, JOB, seq=3, phase=WorkerPhase.IDLE)


def subject_of(fact: str, worker: WorkerId = WORKER, cluster: ClusterName = CLUSTER) -> str:
    return subjects.worker_fact(cluster, worker, fact)


def test_a_fact_reaches_its_job_with_the_receivers_time() -> None:
    heard = fact_of(subject_of("joined"), WorkerJoined(STATUS), 12.5)
    assert heard == ForJob(JOB, events.WorkerSpoke(12.5, STATUS))


def test_leaving_and_notices_are_facts_of_their_own() -> None:
    left = fact_of(subject_of("left"), WorkerLeft(STATUS, "released"), 1.0)
    assert left == ForJob(JOB, events.WorkerSaidLeft(1.0, WORKER, "released"))
    noticed = fact_of(subject_of("notice"), WorkerNoticed(WORKER, JOB, 15.0, "signal"), 1.0)
    assert noticed == ForJob(JOB, events.WorkerNoticeCame(1.0, WORKER, 15.0, "signal"))


@pytest.mark.parametrize(
    "subject",
    [
        subject_of("ready", worker=WorkerId("w2-0001")),
        subject_of("ready", cluster=ClusterName("other")),
        "tradewind.worker.local.ready",
    ],
)
def test_a_worker_that_speaks_on_anothers_subject_is_not_believed(subject: str) -> None:
    assert fact_of(subject, WorkerJoined(STATUS), 1.0) is Refused.SUBJECT_MISMATCH


def test_a_notice_for_another_worker_is_not_believed() -> None:
    notice = WorkerNoticed(WorkerId("w2-0001"), JOB, 15.0, "signal")
    assert fact_of(subject_of("notice"), notice, 1.0) is Refused.SUBJECT_MISMATCH


def test_a_message_of_another_kind_is_refused() -> None:
    halt = Halt(JOB, Generation(1), "why", 5.0)
    assert fact_of(subject_of("ready"), halt, 1.0) is Refused.UNEXPECTED_KIND
    assert topology_of(subjects.cluster_heartbeat(CLUSTER), halt) is Refused.UNEXPECTED_KIND
    assert progress_of(subjects.progress(JOB), halt) is Refused.UNEXPECTED_KIND


def test_topologies_and_progress_must_match_their_subject() -> None:
    heartbeat = ClusterHeartbeat(CLUSTER, "one", 1)
    assert topology_of(subjects.cluster_heartbeat(CLUSTER), heartbeat) is heartbeat
    assert topology_of(subjects.cluster_heartbeat(ClusterName("x")), heartbeat) is Refused.SUBJECT_MISMATCH
    progress = GatheredProgress(JOB, CLUSTER, (Progress(JOB, WORKER, Generation(1), ()),))
    assert progress_of(subjects.progress(JOB), progress) is progress
    assert progress_of(subjects.progress(JobName("x")), progress) is Refused.SUBJECT_MISMATCH
