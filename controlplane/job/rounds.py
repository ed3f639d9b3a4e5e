"""Who of a world that is being made, or ended, has not yet done what it was told."""

from controlplane.job.hot import concerned, has_entered, is_over
from controlplane.job.present import has_finished, present_members
from controlplane.job.state import Job, Worker
from controlplane.job.stopping import is_ending
from messages.ids import WorkerId
from messages.workers import WorkerPhase
from messages.worlds import Assignment, Member


def unready(job: Job) -> list[WorkerId]:
    """Members that are there but have not said that they forked their trainers, or took them over."""
    return [worker.worker for member, worker in present_members(job) if not _is_ready(job, member, worker)]


def unparked(job: Job) -> list[WorkerId]:
    """Members of the halted worlds that are there and may still have trainers in them."""
    return [worker.worker for worker in concerned(job) if not _is_parked(job, worker)]


def has_switched(job: Job, world: Assignment) -> bool:
    """All its members are there, and their trainers went over to it. After the last step nobody is missed."""
    present = [(member, job.workers[member.worker]) for member in world.members if member.worker in job.workers]
    complete = len(present) == len(world.members) or (bool(present) and is_over(job))
    return complete and all(has_entered(world, member, worker) for member, worker in present)


def some_switched(job: Job, world: Assignment) -> bool:
    """Some that trained before do so in it. Joiners are in it from the start, without the state."""
    trainers = [trainer for worker in concerned(job) for trainer in worker.trainers]
    return any(trainer.active and trainer.generation >= world.generation for trainer in trainers)


def _is_ready(job: Job, member: Member, worker: Worker) -> bool:
    world = job.record.assignment
    if world is not None and world.hot is not None:
        return has_finished(job, member) or has_entered(world, member, worker)
    obeys = worker.generation == job.record.generation
    return obeys and worker.phase in (WorkerPhase.READY, WorkerPhase.ENDED)


def _is_parked(job: Job, worker: Worker) -> bool:
    """Where no world follows, its trainers must have ended."""
    if is_ending(job) and worker.trainers:
        return False
    if worker.trainers and all(trainer.parked >= job.record.generation for trainer in worker.trainers):
        return True
    obeys = worker.generation >= job.record.generation
    return obeys and worker.phase in (WorkerPhase.PARKED, WorkerPhase.IDLE, WorkerPhase.LEAVING)
