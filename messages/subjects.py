"""Subjects and keys of the bus. No other module builds or parses them."""

from typing import NamedTuple

from messages.compact_worlds import WorldReference
from messages.ids import ClusterName, Epoch, JobName, Rank, WorkerId, is_name

PREFIX = "tradewind"

WORKER_FACTS = ("joined", "ready", "position", "parking", "parked", "switched", "exited", "peer_lost", "left", "notice")

EVENTS_STREAM = "tradewind-events"
EVENTS_STREAM_SUBJECTS = (f"{PREFIX}.event.>",)
LOGS_STREAM = "tradewind-logs"
LOGS_STREAM_SUBJECTS = (f"{PREFIX}.job.*.log.>",)
STATE_BUCKET = "tradewind"


def cluster_heartbeat(cluster: ClusterName | None = None) -> str:
    """Returns the subject of one cluster's heartbeat, or of all clusters'."""
    return f"{PREFIX}.cluster.{_token(cluster)}.heartbeat"


def cluster_command(cluster: ClusterName) -> str:
    return f"{PREFIX}.cluster.{_token(cluster)}.command"


def worker_heartbeat(cluster: ClusterName, worker: WorkerId | None = None) -> str:
    return f"{PREFIX}.worker.{_token(cluster)}.{_token(worker)}.heartbeat"


def worker_fact(cluster: ClusterName | None, worker: WorkerId | None, fact: str) -> str:
    if fact not in WORKER_FACTS:
        raise ValueError(f"{fact!r} is not a fact of a worker; facts are {', '.join(WORKER_FACTS)}")
    return f"{PREFIX}.worker.{_token(cluster)}.{_token(worker)}.{fact}"


def worker_command(cluster: ClusterName, worker: WorkerId) -> str:
    return f"{PREFIX}.worker.{_token(cluster)}.{_token(worker)}.command"


def worker_order(cluster: ClusterName, worker: WorkerId) -> str:
    """Returns the subject on which a master repeats to one worker what it sent to all workers of the job."""
    return f"{PREFIX}.worker.{_token(cluster)}.{_token(worker)}.order"


def assignment(job: JobName | None = None) -> str:
    return f"{PREFIX}.job.{_token(job)}.assignment"


def invite(job: JobName | None = None) -> str:
    return f"{PREFIX}.job.{_token(job)}.invite"


def halt(job: JobName | None = None) -> str:
    return f"{PREFIX}.job.{_token(job)}.halt"


def locate(job: JobName | None = None) -> str:
    return f"{PREFIX}.job.{_token(job)}.locate"


def end_stalled(job: JobName | None = None) -> str:
    return f"{PREFIX}.job.{_token(job)}.end_stalled"


def release(job: JobName | None = None) -> str:
    return f"{PREFIX}.job.{_token(job)}.release"


def worker_progress(cluster: ClusterName, worker: WorkerId | None = None) -> str:
    """Returns the subject on which a worker reports its trainers' steps to its controller."""
    return f"{PREFIX}.worker.{_token(cluster)}.{_token(worker)}.progress"


def progress(job: JobName | None = None) -> str:
    """Returns the subject on which controllers report the steps of a job's trainers, gathered by cluster."""
    return f"{PREFIX}.job.{_token(job)}.progress"


def log(job: JobName | None = None, rank: Rank | None = None) -> str:
    return f"{PREFIX}.job.{_token(job)}.log.{'*' if rank is None else int(rank)}"


def event(scope: str | None = None, kind: str | None = None) -> str:
    return f"{PREFIX}.event.{_token(scope)}.{'*' if kind is None else _event_kind(kind)}"


def spec_key(job: JobName) -> str:
    return f"jobs.{_token(job)}.spec"


def record_key(job: JobName) -> str:
    return f"jobs.{_token(job)}.world"


def world_chunk_keys(job: JobName, reference: WorldReference) -> tuple[str, ...]:
    """Returns the keys of a stored world's chunks, in order."""
    world = f"jobs.{_token(job)}.worlds.{reference.epoch}.{reference.digest}"
    return tuple(f"{world}.{number}" for number in range(reference.chunks))


def world_chunks(job: JobName) -> str:
    """Returns the pattern for all chunks of all worlds of a job."""
    return f"jobs.{_token(job)}.worlds.>"


JOB_SPECS = "jobs.*.spec"
JOB_RECORDS = "jobs.>"
LEADER_KEY = "leader"
ORIGIN_KEY = "origin"
"""Written once in a bucket's life. A new revision means that earlier data is lost."""


def ledger_key(job: JobName) -> str:
    return f"ledger.{_token(job)}"


def memory_key(zone: str | None = None) -> str:
    """Returns the key of a zone's observations, or the pattern for all zones."""
    return f"memory.{'*' if zone is None else zone}"


def known_key(cluster: ClusterName) -> str:
    return f"fleet.{_token(cluster)}.known"


class WorkerSubject(NamedTuple):
    cluster: ClusterName
    worker: WorkerId
    what: str


def parse_worker(subject: str) -> WorkerSubject | None:
    parts = subject.split(".")
    if len(parts) == 5 and parts[:2] == [PREFIX, "worker"] and is_name(parts[2]) and is_name(parts[3]):
        return WorkerSubject(ClusterName(parts[2]), WorkerId(parts[3]), parts[4])
    return None


def parse_cluster(subject: str) -> ClusterName | None:
    parts = subject.split(".")
    if len(parts) == 4 and parts[:2] == [PREFIX, "cluster"] and is_name(parts[2]):
        return ClusterName(parts[2])
    return None


def parse_job(subject: str) -> JobName | None:
    parts = subject.split(".")
    if len(parts) >= 4 and parts[:2] == [PREFIX, "job"] and is_name(parts[2]):
        return JobName(parts[2])
    return None


def parse_chunk_key(key: str) -> tuple[Epoch, str] | None:
    """Returns the epoch in which the chunk was written, and the digest of its world."""
    parts = key.split(".")
    if len(parts) == 6 and parts[0] == "jobs" and parts[2] == "worlds" and parts[3].isdecimal():
        return Epoch(int(parts[3])), parts[4]
    return None


def parse_memory_key(key: str) -> str:
    return key.removeprefix("memory.")


def parse_spec_key(key: str) -> JobName | None:
    parts = key.split(".")
    if len(parts) == 3 and parts[0] == "jobs" and parts[2] == "spec" and is_name(parts[1]):
        return JobName(parts[1])
    return None


def _token(name: str | None) -> str:
    if name is None:
        return "*"
    if not is_name(name):
        raise ValueError(f"{name!r} cannot be part of a subject: lower-case letters, digits and '-' only, at most 63")
    return name


def _event_kind(kind: str) -> str:
    if not kind.replace("_", "").isalnum():
        raise ValueError(f"{kind!r} cannot be the kind of an event: letters, digits and '_' only")
    return kind
