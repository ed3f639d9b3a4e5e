"""From what arrives on the bus to what a job's core may learn. What does not fit its subject is refused."""

from dataclasses import dataclass
from enum import StrEnum

from controlplane.job import events
from controlplane.job.events import JobEvent
from messages import subjects, workers
from messages.clusters import ClusterHeartbeat
from messages.envelope import Message
from messages.ids import JobName
from messages.worlds import Progress

_STATUS_FACTS = (
    workers.WorkerJoined,
    workers.WorkerReady,
    workers.WorkerParking,
    workers.WorkerParked,
    workers.WorkerPosition,
    workers.WorkerSwitched,
    workers.WorkerExited,
    workers.WorkerPeerLost,
)


class Refused(StrEnum):
    UNEXPECTED_KIND = "unexpected_kind"
    SUBJECT_MISMATCH = "subject_mismatch"
    UNKNOWN_JOB = "unknown_job"
    UNKNOWN_WORKER = "unknown_worker"
    DOUBTED = "doubted"
    """Its numbers cannot be true; see `messages.bounds`."""


@dataclass(frozen=True, slots=True)
class ForJob:
    job: JobName
    event: JobEvent


def worker_fact(subject: str, message: Message, at_s: float) -> ForJob | Refused:
    speaker = subjects.parse_worker(subject)
    if speaker is None:
        return Refused.SUBJECT_MISMATCH
    if isinstance(message, workers.WorkerNoticed):
        if message.worker != speaker.worker:
            return Refused.SUBJECT_MISMATCH
        return ForJob(message.job, events.WorkerNoticeCame(at_s, message.worker, message.remaining_s, message.source))
    if not isinstance(message, (*_STATUS_FACTS, workers.WorkerLeft)):
        return Refused.UNEXPECTED_KIND
    status = message.status
    if (status.cluster, status.worker) != (speaker.cluster, speaker.worker):
        return Refused.SUBJECT_MISMATCH
    if isinstance(message, workers.WorkerLeft):
        left = events.WorkerSaidLeft(at_s, status.worker, status.cluster, message.why, message.is_unfit)
        return ForJob(status.job, left)
    ended = message.exit if isinstance(message, workers.WorkerExited | workers.WorkerPeerLost) else None
    return ForJob(status.job, events.WorkerSpoke(at_s, status, ended))


def topology(subject: str, message: Message) -> ClusterHeartbeat | Refused:
    if not isinstance(message, ClusterHeartbeat):
        return Refused.UNEXPECTED_KIND
    return message if subjects.parse_cluster(subject) == message.cluster else Refused.SUBJECT_MISMATCH


def progress(subject: str, message: Message) -> Progress | Refused:
    if not isinstance(message, Progress):
        return Refused.UNEXPECTED_KIND
    return message if subjects.parse_job(subject) == message.job else Refused.SUBJECT_MISMATCH


def jobs_of(heartbeat: ClusterHeartbeat) -> set[JobName]:
    """Those that have workers in the cluster, or should have."""
    return {sight.job for sight in heartbeat.workers} | {job for job, count in heartbeat.keeps.items() if count}
