"""Short observations of a cluster."""

from itertools import count
from typing import Any

from controlplane.job.state import Want
from messages.clusters import Presence, WorkerObservation
from messages.ids import ClusterName, JobName, WorkerId
from messages.workers import WorkerPhase, WorkerStatus

JOB = JobName("demo")
US = ClusterName("us")


def a_worker(
    name: str, node: str, phase: WorkerPhase = WorkerPhase.READY, presence: Presence = Presence.ALIVE
) -> WorkerObservation:
    worker = WorkerId(name)
    status = WorkerStatus(worker=worker, cluster=US, job=JOB, seq=1, phase=phase, node=node)
    return WorkerObservation(worker, JOB, presence, status=status)


def a_starting_worker(name: str) -> WorkerObservation:
    """A worker whose node is unknown."""
    return WorkerObservation(WorkerId(name), JOB, Presence.STARTING)


_numbers = count(1)


def a_want(nodes: int, ended: str | None = None, **facts: Any) -> Want:
    """A `Want` with a higher number than all earlier ones."""
    return Want(next(_numbers), nodes, ended, **facts)
