"""Sights of a cluster, as short as a test wants them."""

from itertools import count
from typing import Any

from controlplane.job.state import Want
from messages.clusters import Presence, WorkerSight
from messages.ids import ClusterName, JobName, WorkerId
from messages.workers import WorkerPhase, WorkerStatus

JOB = JobName("demo")
US = ClusterName("us")


def a_worker(
    name: str, node: str, phase: WorkerPhase = WorkerPhase.READY, presence: Presence = Presence.ALIVE
) -> WorkerSight:
    worker = WorkerId(name)
    status = WorkerStatus(worker=worker, cluster=US, job=JOB, seq=1, phase=phase, node=node)
    return WorkerSight(worker, JOB, presence, status=status)


def a_starting_worker(name: str) -> WorkerSight:
    """Nobody knows yet where it is."""
    return WorkerSight(WorkerId(name), JOB, Presence.STARTING)


_numbers = count(1)


def a_want(nodes: int, ended: str | None = None, **facts: Any) -> Want:
    """What a job wants; newer than any that was made before."""
    return Want(next(_numbers), nodes, ended, **facts)
