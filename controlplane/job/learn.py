"""First half of a decision: what an event teaches. Nothing is decided here.

Five fences keep late or false messages from teaching anything: a tombstone for a worker that is gone, `seq` for a
message older than the newest of the same worker, the generation for what trainers did in a world that is no more, the
time of submission for a worker of an earlier job of the same name, and bounds for what cannot be true (`doubts`).
"""

from dataclasses import replace
from typing import assert_never

from msgspec import structs

from controlplane.job import events
from controlplane.job.doubts import note_doubt, why_doubted
from controlplane.job.learn_budget import learn_budget
from controlplane.job.live.trainers import is_over, lives_on
from controlplane.job.queries import has_finished, is_halted, member_of, member_of_prepared
from controlplane.job.ranks import ranks_of
from controlplane.job.reload import ask_for_reload, forget_outdated
from controlplane.job.scripts import came_further, has_first_step, has_fresh_checkpoint
from controlplane.job.sentences import describe_waiting
from controlplane.job.sharing import heard_again
from controlplane.job.state import Barred, Cluster, Failure, Job, Store, Unfit, Worker
from controlplane.job.stopping import ask_to_stop, keep_checkpoint
from messages.bounds import doubt_notice
from messages.clusters import ClusterHeartbeat, Presence, WorkerSight
from messages.ids import ClusterName, Rank, WorkerId
from messages.jobs import Failures
from messages.workers import TrainerExit, WorkerPhase, WorkerStatus
from runtime.backoff import pause_after

TOMBSTONES_AT_MOST = 1000
PAST_INCARNATIONS_AT_MOST = 10
INCARNATION_QUIET_S = 5.0
CLUSTER_FORGOTTEN_S = 3600.0
"""Seconds before a silent, empty cluster is forgotten. It keeps no share for that long: see `sharing.py`."""
FORGIVEN_S = 60.0
"""So long a worker whose trainers failed has to do better before it is trusted like any other."""
OF_EARLIER_JOB = "it belongs to an earlier job of this name"
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
            job = _hear(job, status, at_s, heard_s=at_s, presence=Presence.ALIVE)
            return _learn_newcomer(job, status.worker, exit_)
        case events.WorkerSaidLeft(_, worker, _, why, is_unfit):
            if is_unfit and knows(job, worker):
                job = replace(job, failures=replace(job.failures, unfit=Unfit(job.failures.unfit.workers + 1, why)))
            return bury(job, worker, why or "left")
        case events.WorkerNoticeCame(at_s, worker, remaining_s, source):
            doubt = doubt_notice(remaining_s)
            if doubt:
                return note_doubt(job, worker, doubt)
            what = "it was told to end within" if source == "signal" else "its node will be taken in"
            why = f"{what} {remaining_s:.0f} s ({source})"
            return _notice(job, worker, why, at_s + remaining_s)
        case events.ClusterReported(at_s, topology):
            return _see(job, topology, at_s)
        case events.ClusterAnswered(_, cluster, refusal):
            return _hear_answer(job, cluster, refusal)
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


def backoff_s(limits: Failures, failures: int) -> float:
    return pause_after(failures, limits.backoff_s, limits.backoff_max_s)


def bury(job: Job, worker: WorkerId, why: str) -> Job:
    """From now on nothing that it says counts."""
    if worker in job.gone:
        return job
    was_over, was_released = is_over(job), worker in job.contacts.released_s
    gone = {**job.gone, worker: why}
    while len(gone) > TOMBSTONES_AT_MOST:
        del gone[next(iter(gone))]
    job = replace(
        job,
        gone=gone,
        workers={key: value for key, value in job.workers.items() if key != worker},
        contacts=replace(
            job.contacts,
            released_s={key: value for key, value in job.contacts.released_s.items() if key != worker},
            invited_s={key: value for key, value in job.contacts.invited_s.items() if key != worker},
        ),
        failures=replace(
            job.failures, barred={key: value for key, value in job.failures.barred.items() if key != worker}
        ),
    )
    job = forget_outdated(job, worker)
    member = member_of(job, worker)
    if member is not None and was_over:
        job = replace(job, round=replace(job.round, clean=job.round.clean | set(ranks_of(member))))
    is_member = member is not None or member_of_prepared(job, worker) is not None
    needless = was_released or job.record.phase.ended or job.record.rests
    if needless or not is_member or (member is not None and has_finished(job, member)):
        return job
    return replace(
        job,
        record=structs.replace(job.record, losses=job.record.losses + 1),
        round=replace(job.round, lost_member=True),
    )


def _hear(job: Job, status: WorkerStatus, at_s: float, *, heard_s: float, presence: Presence) -> Job:
    known = job.workers.get(status.worker) or Worker(status.worker, status.cluster, first_seen_s=at_s, heard_s=heard_s)
    if status.submitted_at and status.submitted_at != job.record.submitted_at:
        if not job.is_submission_known:
            job = _learn_submission(job, status.submitted_at)
        elif known.seq >= 0:  # a forged message must not end a worker that is known to be of this job
            return note_doubt(job, status.worker, "it names another submission of the job")
        else:
            job = bury(job, status.worker, OF_EARLIER_JOB)
    if is_dead(job, status.worker):
        return replace(job, contacts=replace(job.contacts, stale={**job.contacts.stale, status.worker: status.cluster}))
    if is_old_word(known, status):
        # Its cluster-controller may know its zone where it does not, and repeats its words with that.
        zone, node = known.zone or status.zone, known.node or status.node
        return _put(job, replace(known, heard_s=max(known.heard_s, heard_s), presence=presence, zone=zone, node=node))
    heard = Worker(
        worker=status.worker,
        cluster=status.cluster,
        first_seen_s=known.first_seen_s,
        heard_s=max(known.heard_s, heard_s),
        presence=presence,
        seq=status.seq,
        phase=status.phase,
        generation=status.generation,
        slots=status.slots,
        region=status.region,
        zone=status.zone or known.zone,
        node=status.node or known.node,
        address=status.address,
        pid=status.pid,
        step=status.step if status.step is not None else known.step,
        checkpoints=status.checkpoints,
        exits=status.exits,
        fallen=status.fallen,
        noticed=known.noticed,
        deadline_s=known.deadline_s,
        trainers=status.trainers,
    )
    if job.failures.unfit.workers and status.phase not in (WorkerPhase.WARMING, WorkerPhase.LEAVING):
        job = replace(job, failures=replace(job.failures, unfit=Unfit()))
    if _active_ranks(heard) - _active_ranks(known):
        job = replace(job, round=replace(job.round, share_taken_s=at_s))
    if status.step is not None and has_first_step(job, heard):
        job = came_further(job, at_s, by_step=True)
    if has_fresh_checkpoint(job, known, heard):
        job = replace(job, script=replace(job.script, checkpointed_s=at_s))
    if heard.checkpoints and not job.record.checkpointed:
        job = replace(job, record=structs.replace(job.record, checkpointed=True))
    job = _learn_ends(_learn_fallen(learn_exits(_put(job, heard), heard), heard), known, heard)
    job = keep_checkpoint(_keep_certificate(_bar(job, known, heard, at_s), heard), status.checkpoint)
    if status.notice_s is not None:
        job = _notice(
            job, status.worker, f"its node will be taken in {status.notice_s:.0f} s", heard_s + status.notice_s
        )
    if status.phase is WorkerPhase.LEAVING:
        job = _notice(job, status.worker, "it is leaving", heard_s)
    return job


def _learn_submission(job: Job, submitted_at: float) -> Job:
    """The record of the job was lost, and its workers know when the job was submitted."""
    submitted_s = job.submitted_s + submitted_at - job.record.submitted_at
    record = structs.replace(job.record, submitted_at=submitted_at)
    return replace(job, is_submission_known=True, submitted_s=submitted_s, record=record)


def _active_ranks(worker: Worker) -> set[int]:
    return {trainer.local_rank for trainer in worker.trainers if trainer.active}


def is_dead(job: Job, worker: WorkerId) -> bool:
    return worker in job.gone


def knows(job: Job, worker: WorkerId) -> bool:
    """It is, or was, a worker of this job."""
    return worker in job.workers or job.gone.get(worker, OF_EARLIER_JOB) != OF_EARLIER_JOB


def is_old_word(known: Worker, status: WorkerStatus) -> bool:
    return status.seq <= known.seq


def concerns_present_world(job: Job, worker: Worker) -> bool:
    """What its trainers did counts only if they did it in the newest world. Those that live on may end when parked."""
    assignment = job.record.assignment
    if assignment is None:
        return False
    parked = is_halted(job) and worker.generation == job.record.generation
    return worker.generation == assignment.generation or parked


def learn_exits(job: Job, worker: Worker) -> Job:
    """In a prepared world only a failure counts before the others are known to have gone over."""
    prepared = job.record.prepared
    if prepared is not None and worker.generation == prepared.generation:
        member = member_of_prepared(job, worker.worker)
    else:
        prepared, member = None, member_of(job, worker.worker)
        if not concerns_present_world(job, worker):
            return job
    if member is None:
        return job
    own = [exit_ for exit_ in worker.exits if exit_.rank in ranks_of(member)]
    clean = job.round.clean | {exit_.rank for exit_ in own if exit_.clean and prepared is None}
    failed = [exit_ for exit_ in own if not exit_.clean]
    job = _learn_early(replace(job, round=replace(job.round, clean=clean)), worker.worker, own)
    if is_halted(job) and job.round.failure is None:
        # A halt ends ranks, and that is no failure. It does not end those that live through changes.
        failed = [exit_ for exit_ in failed if exit_.by_itself and lives_on(job)]
    return replace(job, round=replace(job.round, failure=_first_cause(job.round.failure, worker.worker, failed)))


def _learn_fallen(job: Job, worker: Worker) -> Job:
    """A halt does not end who lives through changes: that others noticed its end before it was told excuses nothing."""
    member = member_of(job, worker.worker)
    if member is None or not is_halted(job):
        return job
    own = [
        structs.replace(each.exit, rank=Rank(member.first_rank + each.local_rank))
        for each in worker.fallen
        if each.generation == job.record.generation and each.local_rank < member.ranks
    ]
    failed = [exit_ for exit_ in own if not exit_.clean]
    job = _learn_early(job, worker.worker, own)
    return replace(job, round=replace(job.round, failure=_first_cause(job.round.failure, worker.worker, failed)))


def _learn_newcomer(job: Job, worker: WorkerId, exit_: TrainerExit | None) -> Job:
    """It disturbs nobody and is asked again, but people should know why it does not come."""
    in_world = member_of(job, worker) is not None or member_of_prepared(job, worker) is not None
    if exit_ is None or in_world or worker not in job.workers or is_over(job):
        return job
    return replace(job, failures=replace(job.failures, joining=Failure(worker, exit_)))


def _learn_early(job: Job, worker: WorkerId, exits: list[TrainerExit]) -> Job:
    early = next((exit_ for exit_ in exits if exit_.early), None)
    return (
        replace(job, round=replace(job.round, quit=Failure(worker, early)))
        if early is not None and job.round.quit is None
        else job
    )


def _learn_ends(job: Job, known: Worker, heard: Worker) -> Job:
    """A trainer that ends after its last step, outside of the world that counts: nobody tells there how it exited."""
    member = member_of(job, heard.worker)
    if member is None or not (is_halted(job) or job.record.prepared is not None):
        return job
    attached = {trainer.local_rank for trainer in heard.trainers}
    ended = {
        Rank(member.first_rank + trainer.local_rank)
        for trainer in known.trainers
        if trainer.finished and trainer.local_rank < member.ranks and trainer.local_rank not in attached
    }
    return replace(job, round=replace(job.round, clean=job.round.clean | ended)) if ended else job


def _keep_certificate(job: Job, heard: Worker) -> Job:
    """All ranks have the same: it is computed from what was summed over all of them."""
    told = next((trainer.certificate for trainer in heard.trainers if trainer.certificate is not None), None)
    if told is None or job.record.certificate is not None or job.record.phase.ended:
        return job
    return replace(job, record=structs.replace(job.record, certificate=told))


def _first_cause(known: Failure | None, worker: WorkerId, failed: list[TrainerExit]) -> Failure | None:
    """The first that failed by itself; a rank that lost its peer is only a witness."""
    for exit_ in failed:
        if known is None or (known.exit.peer_lost and not exit_.peer_lost):
            known = Failure(worker, exit_)
    return known


def _bar(job: Job, known: Worker, heard: Worker, at_s: float) -> Job:
    """Trainers that fail by themselves wait longer each time before their worker is invited again."""
    barred = job.failures.barred.get(heard.worker)
    forgiven = barred is not None and at_s >= barred.until_s + FORGIVEN_S
    if forgiven and any(trainer.active for trainer in heard.trainers):
        return replace(
            job,
            failures=replace(
                job.failures, barred={key: value for key, value in job.failures.barred.items() if key != heard.worker}
            ),
        )
    failed = [exit_ for exit_ in heard.exits if (not exit_.clean or exit_.early) and exit_ not in known.exits]
    if not failed and set(heard.fallen) <= set(known.fallen):
        return job
    failures = barred.failures + 1 if barred is not None else 1
    until_s = at_s + backoff_s(job.spec.failures, failures)
    return replace(
        job, failures=replace(job.failures, barred={**job.failures.barred, heard.worker: Barred(failures, until_s)})
    )


def _notice(job: Job, worker: WorkerId, why: str, deadline_s: float) -> Job:
    """The first reason is told; of several deadlines the earliest counts."""
    known = job.workers.get(worker)
    if known is None:
        return job
    earliest_s = deadline_s if known.deadline_s is None else min(known.deadline_s, deadline_s)
    return _put(job, replace(known, noticed=known.noticed or why, deadline_s=earliest_s))


def _see(job: Job, topology: ClusterHeartbeat, at_s: float) -> Job:
    before = job.clusters.get(topology.cluster)
    if before is not None and _is_old_topology(before, topology, at_s):
        return job
    restarted = before is not None and before.incarnation != topology.incarnation
    past = before.past_incarnations if before is not None else ()
    if before is not None and restarted:
        past = (*past, before.incarnation)[-PAST_INCARNATIONS_AT_MOST:]
    known = heard_again(before, at_s) if before is not None else Cluster(topology.incarnation, topology.seq, at_s, 0)
    cluster = replace(
        known,
        incarnation=topology.incarnation,
        seq=topology.seq,
        heard_s=at_s,
        keeps=topology.keeps.get(job.name, 0),
        past_incarnations=past,
    )
    job = replace(job, clusters={**_remembered(job, at_s), topology.cluster: cluster})
    if restarted:
        job = _restart_silence(job, topology.cluster, at_s)
    sights = [sight for sight in topology.workers if sight.job == job.name]
    for sight in sights:
        job = _see_worker(job, topology.cluster, sight, at_s)
    return _miss(job, topology.cluster, {sight.worker for sight in sights})


def _remembered(job: Job, at_s: float) -> dict[ClusterName, Cluster]:
    inhabited = {worker.cluster for worker in job.workers.values()}
    return {
        name: cluster
        for name, cluster in job.clusters.items()
        if cluster.keeps or name in inhabited or at_s - cluster.heard_s <= CLUSTER_FORGOTTEN_S
    }


def _is_old_topology(before: Cluster, topology: ClusterHeartbeat, at_s: float) -> bool:
    """An earlier incarnation counts again if the one that took its place is quiet: it was a stray, or has died."""
    if topology.incarnation == before.incarnation:
        return topology.seq <= before.seq
    return topology.incarnation in before.past_incarnations and at_s - before.heard_s < INCARNATION_QUIET_S


def _hear_answer(job: Job, cluster: ClusterName, refusal: str) -> Job:
    known = job.clusters.get(cluster)
    if known is None or known.refusal == refusal:
        return job
    return replace(job, clusters={**job.clusters, cluster: replace(known, refusal=refusal)})


def _see_worker(job: Job, cluster: ClusterName, sight: WorkerSight, at_s: float) -> Job:
    if sight.presence is Presence.GONE:
        return bury(job, sight.worker, sight.why or "gone")
    if sight.status is not None:
        doubt = why_doubted(job, sight.status)
        if not doubt:
            return _hear(job, sight.status, at_s, heard_s=at_s - sight.silent_s, presence=sight.presence)
        return _see_doubted(job, cluster, sight, doubt, at_s)
    if is_dead(job, sight.worker):
        return job
    known = job.workers.get(sight.worker)
    if known is not None:
        heard_s = max(known.heard_s, at_s - sight.silent_s)
        silent = sight.presence is Presence.SILENT
        return _put(job, replace(known, presence=sight.presence, heard_s=heard_s)) if silent else job
    return _put(job, Worker(sight.worker, cluster, first_seen_s=at_s, heard_s=at_s, presence=sight.presence))


def _see_doubted(job: Job, cluster: ClusterName, sight: WorkerSight, doubt: str, at_s: float) -> Job:
    """Its controller still says whether it is there."""
    if is_dead(job, sight.worker):
        return job
    fresh = Worker(sight.worker, cluster, first_seen_s=at_s, heard_s=at_s)
    known = job.workers.get(sight.worker, fresh)
    heard_s = max(known.heard_s, at_s - sight.silent_s)
    return note_doubt(_put(job, replace(known, presence=sight.presence, heard_s=heard_s)), sight.worker, doubt)


def _miss(job: Job, cluster: ClusterName, seen: set[WorkerId]) -> Job:
    """Whoever the topology does not name: one that only was to start is forgotten, one that spoke counts as silent."""
    workers: dict[WorkerId, Worker] = {}
    for worker in job.workers.values():
        if worker.cluster != cluster or worker.worker in seen:
            workers[worker.worker] = worker
        elif worker.presence is not Presence.STARTING:
            workers[worker.worker] = replace(worker, presence=Presence.SILENT)
    return replace(job, workers=workers)


def _restart_silence(job: Job, cluster: ClusterName, at_s: float) -> Job:
    """A controller that has just started knows nothing of what was said before."""
    return replace(
        job,
        workers={
            key: replace(worker, heard_s=at_s) if worker.cluster == cluster else worker
            for key, worker in job.workers.items()
        },
    )


def _put(job: Job, worker: Worker) -> Job:
    return replace(job, workers={**job.workers, worker.worker: worker})
