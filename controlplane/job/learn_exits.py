"""What a job learns from exits of trainers: which ranks ended well, and which failed by itself."""

from msgspec.structs import replace

from controlplane.job.live.trainers import is_over, lives_on
from controlplane.job.queries import is_halted, member_of, member_of_prepared
from controlplane.job.ranks import ranks_of
from controlplane.job.state import Failure, Job
from controlplane.job.workers import Worker
from messages.ids import Rank, WorkerId
from messages.workers import TrainerExit


def learn_exits(job: Job, worker: Worker) -> Job:
    """Learns exits. In a prepared world only failures count before all members have switched."""
    prepared = job.record.prepared
    if prepared is not None and worker.generation == prepared.generation:
        member = member_of_prepared(job, worker.worker)
    else:
        prepared, member = None, member_of(job, worker.worker)
        if not concerns_current_world(job, worker):
            return job
    if member is None or not worker.exits:
        return job
    own = [exit_ for exit_ in worker.exits if exit_.rank in ranks_of(member)]
    clean = job.round.clean | {exit_.rank for exit_ in own if exit_.clean and prepared is None}
    failed = [exit_ for exit_ in own if not exit_.clean]
    job = _learn_early(replace(job, round=replace(job.round, clean=clean)), worker.worker, own)
    if is_halted(job) and job.round.failure is None:
        # A halt ends ranks of scripts, which is no failure. It does not end live trainers.
        failed = [exit_ for exit_ in failed if exit_.by_itself and lives_on(job)]
    return replace(job, round=replace(job.round, failure=_first_cause(job.round.failure, worker.worker, failed)))


def learn_fallen(job: Job, worker: Worker) -> Job:
    """Learns exits of live trainers in a halted world. A halt ends none of them, so an unclean exit is a failure."""
    member = member_of(job, worker.worker)
    if member is None or not worker.fallen or not is_halted(job):
        return job
    own = [
        replace(each.exit, rank=Rank(member.first_rank + each.local_rank))
        for each in worker.fallen
        if each.generation == job.record.generation and each.local_rank < member.ranks
    ]
    failed = [exit_ for exit_ in own if not exit_.clean]
    job = _learn_early(job, worker.worker, own)
    return replace(job, round=replace(job.round, failure=_first_cause(job.round.failure, worker.worker, failed)))


def learn_joining(job: Job, worker: WorkerId, exit_: TrainerExit | None) -> Job:
    """Stores the exit of a joining trainer for people. The others continue, and the worker is invited again."""
    in_world = member_of(job, worker) is not None or member_of_prepared(job, worker) is not None
    if exit_ is None or in_world or worker not in job.workers or is_over(job):
        return job
    return replace(job, failures=replace(job.failures, joining=Failure(worker, exit_)))


def learn_ends(job: Job, known: Worker, heard: Worker) -> Job:
    """Counts trainers as clean that detach after their last step while the world changes: no exit is reported then."""
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


def concerns_current_world(job: Job, worker: Worker) -> bool:
    """True if the worker's exits concern the newest world, or its live trainers parked from it."""
    assignment = job.record.assignment
    if assignment is None:
        return False
    parked = is_halted(job) and worker.generation == job.record.generation
    return worker.generation == assignment.generation or parked


def _learn_early(job: Job, worker: WorkerId, exits: list[TrainerExit]) -> Job:
    early = next((exit_ for exit_ in exits if exit_.early), None)
    return (
        replace(job, round=replace(job.round, quit=Failure(worker, early)))
        if early is not None and job.round.quit is None
        else job
    )


def _first_cause(known: Failure | None, worker: WorkerId, failed: list[TrainerExit]) -> Failure | None:
    """The first rank that failed by itself; a rank that lost a peer counts only if there is none."""
    for exit_ in failed:
        if known is None or (known.exit.peer_lost and not exit_.peer_lost):
            known = Failure(worker, exit_)
    return known
