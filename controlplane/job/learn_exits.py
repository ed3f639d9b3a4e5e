"""What the exits of trainers teach: which ranks have ended well, and which failed by itself."""

from msgspec.structs import replace

from controlplane.job.live.trainers import is_over, lives_on
from controlplane.job.queries import is_halted, member_of, member_of_prepared
from controlplane.job.ranks import ranks_of
from controlplane.job.state import Failure, Job
from controlplane.job.workers import Worker
from messages.ids import Rank, WorkerId
from messages.workers import TrainerExit


def learn_exits(job: Job, worker: Worker) -> Job:
    """In a prepared world only a failure counts before the others are known to have gone over."""
    prepared = job.record.prepared
    if prepared is not None and worker.generation == prepared.generation:
        member = member_of_prepared(job, worker.worker)
    else:
        prepared, member = None, member_of(job, worker.worker)
        if not concerns_present_world(job, worker):
            return job
    if member is None or not worker.exits:
        return job
    own = [exit_ for exit_ in worker.exits if exit_.rank in ranks_of(member)]
    clean = job.round.clean | {exit_.rank for exit_ in own if exit_.clean and prepared is None}
    failed = [exit_ for exit_ in own if not exit_.clean]
    job = _learn_early(replace(job, round=replace(job.round, clean=clean)), worker.worker, own)
    if is_halted(job) and job.round.failure is None:
        # A halt ends ranks, and that is no failure. It does not end those that live through changes.
        failed = [exit_ for exit_ in failed if exit_.by_itself and lives_on(job)]
    return replace(job, round=replace(job.round, failure=_first_cause(job.round.failure, worker.worker, failed)))


def learn_fallen(job: Job, worker: Worker) -> Job:
    """A halt does not end who lives through changes: that others noticed its end before it was told excuses nothing."""
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
    """It disturbs nobody and is asked again, but people should know why it does not come."""
    in_world = member_of(job, worker) is not None or member_of_prepared(job, worker) is not None
    if exit_ is None or in_world or worker not in job.workers or is_over(job):
        return job
    return replace(job, failures=replace(job.failures, joining=Failure(worker, exit_)))


def learn_ends(job: Job, known: Worker, heard: Worker) -> Job:
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


def concerns_present_world(job: Job, worker: Worker) -> bool:
    """What its trainers did counts only if they did it in the newest world. Those that live on may end when parked."""
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
    """The first that failed by itself; a rank that lost its peer is only a witness."""
    for exit_ in failed:
        if known is None or (known.exit.peer_lost and not exit_.peer_lost):
            known = Failure(worker, exit_)
    return known
