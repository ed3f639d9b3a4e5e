"""Changes that can wait for a moment: the next world is prepared while the present one trains, and nothing is lost."""

from msgspec.structs import replace

from controlplane.job.draining import can_go_on, kept
from controlplane.job.live.trainers import is_over, joiners, rank_before, whole
from controlplane.job.membership import why_larger, why_without_some
from controlplane.job.queries import can_train, has_finished, may_differ, member_of, members
from controlplane.job.ranks import Arrangement, arrange, choose
from controlplane.job.reload import NEW_CODE, next_to_reload
from controlplane.job.sentences import count, name_workers
from controlplane.job.state import Job
from controlplane.job.workers import Worker
from messages.ids import WorkerId
from messages.worlds import Entry, HotWorld, Member

HANDOVER_LEAST_S = 0.5
"""Of a notice: with less left a hand-over is not begun, and one that was begun is not waited for."""


def why_plan(job: Job) -> str | None:
    """Not worth it once the last step is done."""
    if job.round.clean or is_over(job):
        return None
    for member in members(job) if job.workers.noticed else ():
        if member.worker in job.workers.noticed:
            return f"worker {member.worker} has to go: {job.workers[member.worker].noticed}"
    if not may_differ(job):
        return None
    if (outdated := next_to_reload(job)) is not None:
        return f"worker {outdated} is replaced: {NEW_CODE}"
    candidates = _candidates(job)
    return why_without_some(job, candidates) or why_larger(job, candidates)


def plan(job: Job) -> Arrangement | str:
    """The next world, or why it has to wait."""
    behind = [
        member.worker
        for member in members(job)
        if any(not t.active and t.local_rank < member.ranks for t in job.workers[member.worker].trainers)
    ]
    if behind:
        return f"waiting for {name_workers(behind)} to catch up"
    candidates = _candidates(job)
    if not can_go_on(job, candidates):
        return f"{len(candidates)} of at least {count(job.spec.workers.least, 'worker')} would be left"
    return arrange(candidates, job.spec.replica)


def planned_world(job: Job, next_members: tuple[Member, ...]) -> HotWorld:
    stay = {member.worker for member in next_members}
    return HotWorld(
        entry=Entry.PLANNED,
        previous=tuple(
            rank_before(job, member.worker, local) for member in next_members for local in range(member.ranks)
        ),
        leavers=tuple(member.worker for member in members(job) if member.worker not in stay),
    )


def hurry_at_s(job: Job) -> dict[WorkerId, float]:
    """When members that have to go leave no more time for a hand-over."""
    going = [member for name in job.workers.noticed if (member := member_of(job, name)) is not None]
    return {
        member.worker: deadline_s - HANDOVER_LEAST_S
        for member in sorted(going, key=lambda member: member.first_rank)
        if (deadline_s := job.workers[member.worker].deadline_s) is not None and not has_finished(job, member)
    }


def give_up_at_s(job: Job) -> float | None:
    """When a prepared world has taken too long."""
    if job.record.prepared is None or job.round.prepared_s is None:
        return None
    return job.round.prepared_s + job.spec.timeouts.ready_s


def _candidates(job: Job) -> list[Worker]:
    present = {member.worker for member in members(job)}
    here = [job.workers[name] for name in present - {next_to_reload(job)} if name in job.workers]
    stay = [replace(worker, slots=len(worker.trainers)) for worker in here if can_train(worker)]
    others = [worker for worker in joiners(job) if worker.worker not in present | {*job.record.outdated}]
    able = choose(kept(job, [*stay, *others]), job.record.wanted, present, job.spec.workers)
    chosen = whole(able, job.spec.replica)
    if any(worker.worker in present for worker in chosen):
        return chosen
    return _beside(chosen, job, present)


def _beside(newcomers: list[Worker], job: Job, present: set[WorkerId]) -> list[Worker]:
    """All who have the state have to go: they stay beside the newcomers until one of those has it, too."""
    going = [job.workers[name] for name in sorted(present) if name in job.workers]
    going = [replace(worker, slots=len(worker.trainers)) for worker in going if worker.trainers]
    together = whole([*going, *newcomers], job.spec.replica)
    return together if newcomers and len(together) > len(going) else []
