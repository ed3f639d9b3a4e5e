"""First half of a decision: what an event teaches. Nothing is decided here.

Five fences keep late or false messages from teaching anything: a tombstone for a worker that is gone, `seq` for a
message older than the newest of the same worker, the generation for what trainers did in a world that is no more, the
time of submission for a worker of an earlier job of the same name, and bounds for what cannot be true (`doubts`).
"""

from dataclasses import replace
from typing import assert_never

from controlplane.job import events
from controlplane.job.doubts import note_doubt, why_doubted
from controlplane.job.learn_budget import learn_budget
from controlplane.job.learn_clusters import learn_answer, learn_topology
from controlplane.job.learn_exits import learn_joining
from controlplane.job.learn_workers import hear_worker, knows, learn_notice, tombstone
from controlplane.job.reload import ask_for_reload
from controlplane.job.scripts import came_further
from controlplane.job.sentences import describe_waiting
from controlplane.job.state import Job, Store, Unfit
from controlplane.job.stopping import ask_to_stop
from messages.bounds import doubt_notice
from messages.clusters import Presence

STORE_RETRY_S = 1.0
SAVE_RETRY_S = 0.5


def learn(job: Job, event: events.JobEvent) -> Job:
    match event:
        case events.Ticked():
            return job
        case events.WorkerSpoke(at_s, status, exit_):
            doubt = why_doubted(job, status)
            if doubt:
                return note_doubt(job, status.worker, doubt)
            job = hear_worker(job, status, at_s, heard_s=at_s, presence=Presence.ALIVE)
            return learn_joining(job, status.worker, exit_)
        case events.WorkerSaidLeft(_, worker, _, why, is_unfit):
            if is_unfit and knows(job, worker):
                job = replace(job, failures=replace(job.failures, unfit=Unfit(job.failures.unfit.workers + 1, why)))
            return tombstone(job, worker, why or "left")
        case events.WorkerNoticeCame(at_s, worker, remaining_s, source):
            doubt = doubt_notice(remaining_s)
            if doubt:
                return note_doubt(job, worker, doubt)
            what = "it was told to end within" if source == "signal" else "its node will be taken in"
            why = f"{what} {remaining_s:.0f} s ({source})"
            return learn_notice(job, worker, why, at_s + remaining_s)
        case events.ClusterReported(at_s, topology):
            return learn_topology(job, topology, at_s)
        case events.ClusterAnswered(_, cluster, refusal):
            return learn_answer(job, cluster, refusal)
        case events.PlacementChanged(_, want, workers, shortage, leaving, at_once):
            if job.supply.want is not None and want < job.supply.want.number:
                return job
            told = replace(job.supply, shortage=shortage, leaving=leaving, at_once=at_once)
            return replace(job, supply=replace(told, placement=workers, awaits_placement=workers is None))
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
            return came_further(job, at_s) if generation == job.record.generation else job
        case events.RecordSaved(_, record):
            return replace(job, storage=replace(job.storage, saved=record, saving=None))
        case events.SaveFailed(at_s, _):
            return replace(job, storage=replace(job.storage, saving=None, retry_s=at_s + SAVE_RETRY_S))
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
