"""First half of a decision: what the job learns from an event. Nothing is decided here.

Five fences drop late or false messages: tombstones for workers that are gone, `seq` for messages older than the newest
of the same worker, the generation for facts of an older world, the time of submission for workers of an earlier job of
the same name, and bounds for messages that cannot be true (`doubts`).
"""

from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from controlplane.job import events, texts
from controlplane.job.doubts import note_doubt, why_doubted
from controlplane.job.learn_budget import learn_budget
from controlplane.job.learn_clusters import learn_answer, learn_report
from controlplane.job.learn_exits import learn_joining
from controlplane.job.learn_workers import hear_worker, knows, learn_notice, tombstone
from controlplane.job.reload import ask_for_reload
from controlplane.job.scripts import note_progress
from controlplane.job.state import Job, Store, Unfit
from controlplane.job.stopping import ask_to_stop
from controlplane.job.texts import describe_waiting
from messages.bounds import doubt_notice
from messages.clusters import Presence
from messages.ids import WorkerId

STORE_RETRY_S = 1.0
SAVE_RETRY_S = 0.5
JUDGES_AGAIN_S = 0.5
"""Seconds after a late decision in which no worker is removed for lateness."""


def learn_all(job: Job, batch: Sequence[events.JobEvent]) -> Job:
    """Learns from all events in order, with its own copy of the table of workers."""
    job = replace(job, workers=job.workers.own_copy())
    for event in batch:
        job = learn(job, event)
    return job


def learn(job: Job, event: events.JobEvent) -> Job:
    """Learns from one event. Changes the table of workers in place: it must be the decision's own copy."""
    match event:
        case events.Ticked():
            return job
        case events.FellBehind(at_s):
            return _learn_lateness(job, at_s)
        case events.WorkerSpoke(at_s, status, exit_):
            doubt = why_doubted(job, status)
            if doubt:
                return note_doubt(job, status.worker, doubt)
            job = hear_worker(job, status, at_s, heard_s=at_s, presence=_presence_of(job, status.worker))
            return learn_joining(job, status.worker, exit_)
        case events.WorkerSaidLeft(_, worker, why, is_unfit):
            if is_unfit and knows(job, worker):
                job = replace(job, failures=replace(job.failures, unfit=Unfit(job.failures.unfit.workers + 1, why)))
            return tombstone(job, worker, why or "left")
        case events.WorkerNoticeCame(at_s, worker, remaining_s, source):
            doubt = doubt_notice(remaining_s)
            if doubt:
                return note_doubt(job, worker, doubt)
            return learn_notice(job, worker, texts.noticed(remaining_s, source), at_s + remaining_s)
        case events.ClusterReported():
            return learn_report(job, event)
        case events.ClusterAnswered(_, cluster, refusal):
            return learn_answer(job, cluster, refusal)
        case events.PlacementChanged(_, want, workers, shortage, leaving, at_once):
            if job.supply.want is not None and want < job.supply.want.number:
                return job
            reported = replace(job.supply, shortage=shortage, leaving=leaving, at_once=at_once)
            return replace(job, supply=replace(reported, placement=workers, awaits_placement=workers is None))
        case events.StoreStarted(_, generation, address):
            if generation != job.store.generation:
                return job
            return replace(job, store=Store(generation, address))
        case events.StoreFailed(at_s, generation, why):
            if generation != job.store.generation:
                return job
            return replace(job, store=Store(generation, retry_s=at_s + STORE_RETRY_S, error=why))
        case events.StoreLost():
            return replace(job, store=Store(), round=replace(job.round, store_lost=True))
        case events.RanksWaited(_, generation, waiting, missing):
            if generation != job.record.generation:
                return job
            return replace(job, round=replace(job.round, ranks_waiting=describe_waiting(waiting, missing)))
        case events.RanksMet(at_s, generation):
            return note_progress(job, at_s) if generation == job.record.generation else job
        case events.RecordSaved(_, record):
            return replace(job, storage=replace(job.storage, saved=record, saving=None))
        case events.SaveFailed(at_s, _):
            # The write may have arrived: what is stored is unknown until the next one is confirmed.
            return replace(job, storage=replace(job.storage, saved=None, saving=None, retry_s=at_s + SAVE_RETRY_S))
        case events.RecordLost():
            return replace(job, storage=replace(job.storage, saved=None))
        case events.StopAsked(_, why, grace_s):
            return ask_to_stop(job, why, grace_s)
        case events.ReloadAsked():
            return ask_for_reload(job)
        case events.ScaleAsked() | events.BudgetReached() | events.BudgetFreed() | events.BudgetRaised():
            return learn_budget(job, event)
        case _:
            assert_never(event)


def _presence_of(job: Job, worker: WorkerId) -> Presence:
    """Presence of a worker that spoke directly. A silent one stays silent until its controller hears it too."""
    known = job.workers.get(worker)
    return Presence.SILENT if known is not None and known.presence is Presence.SILENT else Presence.ALIVE


def _learn_lateness(job: Job, at_s: float) -> Job:
    """Delays removals, but not for longer than `suspect_s`: a dead worker keeps the others from training."""
    since_s = job.late_since_s if at_s <= job.judges_from_s + JUDGES_AGAIN_S else at_s
    if at_s - since_s > job.spec.timeouts.suspect_s:
        return job
    return replace(job, late_since_s=since_s, judges_from_s=at_s + JUDGES_AGAIN_S)
