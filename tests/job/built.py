"""Jobs for tests of single rules: a running job, and changes of it."""

from typing import Any

from msgspec.structs import replace

from controlplane.job.state import Cluster, Job
from messages.ids import ClusterName, Generation, Rank, WorkerId
from messages.records import Phase
from messages.workers import TrainerExit
from tests.job.live_stage import a_live_job
from tests.job.stage import a_spec, a_stage

A, B, C = (WorkerId(name) for name in "abc")
OTHER = ClusterName("other")
CUT = TrainerExit(Rank(0), code=1, peer_lost=True)


def a_running_job(*workers: str, **spec: Any) -> Job:
    names = workers or ("a", "b", "c")
    return fresh(a_stage(a_spec(workers=len(names), **spec)).runs(*names).job)


def a_training_job(*workers: str, **spec: Any) -> Job:
    return fresh(a_live_job(*(workers or ("a", "b", "c")), **spec).job)


def fresh(job: Job) -> Job:
    return replace(job, workers=job.workers.own_copy())


def recorded(job: Job, **changes: Any) -> Job:
    return replace(fresh(job), record=replace(job.record, **changes))


def with_round(job: Job, **changes: Any) -> Job:
    return replace(fresh(job), round=replace(job.round, **changes))


def with_worker(job: Job, worker: WorkerId = A, **changes: Any) -> Job:
    after = fresh(job)
    known = job.workers.get(worker) or replace(job.workers[A], worker=worker)
    after.workers.put(replace(known, **changes))
    return after


def with_trainer(job: Job, worker: WorkerId = A, place: int = 0, **changes: Any) -> Job:
    trainers = list(job.workers[worker].trainers)
    trainers[place] = replace(trainers[place], **changes)
    return with_worker(job, worker, trainers=tuple(trainers))


def with_clusters(job: Job, **clusters: Cluster) -> Job:
    return replace(fresh(job), clusters={ClusterName(name): cluster for name, cluster in clusters.items()})


def halted(job: Job, **changes: Any) -> Job:
    job = recorded(job, phase=Phase.RESHAPING, generation=Generation(2), **changes)
    return with_round(job, assigned_s=100.0, halted_s=100.0)
