"""Rules for forgetting a cluster: it is silent for long, and no job has anything in it."""

from controlplane.job.state import Job
from messages.ids import ClusterName

CLUSTER_FORGOTTEN_S = 3600.0
"""Seconds before a silent, empty cluster is forgotten. It loses its share of workers sooner (`sharing.py`)."""


def is_long_silent(heard_s: float, now_s: float) -> bool:
    return now_s - heard_s > CLUSTER_FORGOTTEN_S


def has_anything_in(job: Job, cluster: ClusterName) -> bool:
    """True if the cluster keeps workers for the job, or the job knows a worker there."""
    known = job.clusters.get(cluster)
    if known is not None and known.keeps:
        return True
    return any(worker.cluster == cluster for worker in job.workers.values())
