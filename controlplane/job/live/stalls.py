"""Ranks that others wait for in an all-reduce: the job waits for a slow one, and removes a silent or stalled one.

A trainer that waits for much longer than its steps take reports it. Then the job asks all workers, in rounds, where
their trainers are and whether they run. The answers decide when a round closes:

- All ranks are in the same all-reduce: it does not complete, so the world is broken (`waits_in_vain`).
- A missing rank did not answer, or its process is stopped: its worker is removed.
- A missing rank runs: the job waits and asks again. After `stall_s` the rank is stalled, and ended as a failed script.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from controlplane.job.effects import JobEffect, Publish
from controlplane.job.live.trainers import concerned
from controlplane.job.overdue import OVERSLEPT_S, Overdue
from controlplane.job.queries import is_decided, last_heard_s
from controlplane.job.ranks import ranks_of
from controlplane.job.state import Job, Wait
from controlplane.job.texts import name_ranks
from controlplane.job.workers import Worker
from messages.ids import Rank
from messages.records import Phase
from messages.workers import TrainerStatus
from messages.worlds import Assignment, EndStalled, Locate

LOCATE_EVERY_S = 1.0
"""Seconds from one round of questions to the next."""
LOCATES_IN_TIME = 4
"""How often a question is asked within `park_s`."""
STALL_LEAST_S = 60.0
STALL_STEPS = 20
STALL_UNMEASURED_S = 600.0
"""Seconds after which a rank without measured steps is stalled: its first steps may compile."""
TRAINER_STOPPED = "its trainer is stopped"


@dataclass(frozen=True, slots=True)
class Seat:
    """A rank, not yet finished, of the world in which others wait."""

    rank: Rank
    worker: Worker
    trainer: TrainerStatus | None
    """None if its worker has not reported yet, or has lost the trainer."""

    @property
    def paused(self) -> bool:
        return self.trainer is not None and bool(self.trainer.paused)

    def waits(self, world: Assignment, step: int) -> bool:
        """True if it has entered the all-reduce. A joining trainer does not know the step, and one that has not
        switched yet is still in the previous step."""
        trainer = self.trainer
        if trainer is None or trainer.waiting is None or trainer.generation > world.generation:
            return False
        return trainer.waiting == step or not trainer.active or trainer.generation < world.generation

    def waits_long(self, world: Assignment, step: int) -> bool:
        return self.trainer is not None and self.trainer.overdue and self.waits(world, step)

    def answered(self, number: int) -> bool:
        return self.trainer is not None and self.trainer.located == number


def waits_for_ranks(ranks: list[Rank], step: int, reasons: str = "") -> str:
    named = name_ranks(ranks) + (f" ({reasons})" if reasons else "")
    return f"waiting for {named} to enter the all-reduce of step {step}"


def never_completes(step: int) -> str:
    return f"all ranks wait in the all-reduce of step {step}, and it does not complete"


def not_entered(step: int, seconds: float) -> str:
    return f"it has not entered the all-reduce of step {step} for {seconds:.0f} s"


Watched = tuple[Job, Overdue, list[JobEffect]]


def watch(job: Job, now_s: float) -> Watched:
    """Returns the changed job, the workers to remove, and the effects. `job.wait` is None while no trainer waits for
    long."""
    found = _waited_in(job)
    if found is None:
        return (job if job.wait is None else replace(job, wait=None)), [], []
    world, step = found
    everybody = _seats(job, world)
    there = frozenset(seat.rank for seat in everybody if seat.waits(world, step))
    missing = [seat for seat in everybody if seat.rank not in there]
    wait = _learned(job, world, step, there, missing, now_s)
    asked = [seat for seat in everybody if not seat.waits_long(world, step)]
    if not asked:
        return replace(job, wait=wait), [], []
    job = _restart_time_limits(job, now_s)
    if not wait.number:
        return _ask(job, _new_round(wait, now_s), now_s)
    closes_s, silent = _closes_s(job, wait, everybody), [seat for seat in asked if not seat.answered(wait.number)]
    if now_s < closes_s:
        repeats = silent and now_s >= wait.sent_s + _repeat_s(job)
        return _ask(job, wait, now_s) if repeats else (replace(job, wait=wait), [], [])
    if not wait.is_judged:
        if silent and now_s < job.judges_from_s:
            return replace(job, wait=wait), [], []
        if silent and now_s > closes_s + OVERSLEPT_S:  # this process was late: answers may be queued
            return _ask(job, _new_round(wait, now_s), now_s)
        removed = {seat.worker.worker: (seat.worker, _why_silent(job, seat, wait, now_s)) for seat in silent}
        job = replace(job, wait=replace(wait, is_judged=True))
        return job, list(removed.values()), _end_stalled(job, wait, everybody, missing, now_s)
    if now_s >= wait.asked_s + LOCATE_EVERY_S:
        return _ask(job, _new_round(wait, now_s), now_s)
    return replace(job, wait=wait), [], []


def waits_in_vain(job: Job) -> str | None:
    """Why an all-reduce cannot complete: all ranks wait in it for long, or a missing rank has lost its trainer."""
    found = _waited_in(job) if job.wait is not None else None
    if found is None:
        return None
    world, step = found
    everybody = _seats(job, world)
    for seat in everybody:
        if seat.trainer is None and seat.worker.seq >= 0:
            return f"the others wait for rank {seat.rank} in step {step}, and worker {seat.worker.worker} has lost it"
    if all(seat.waits_long(world, step) for seat in everybody):
        return never_completes(step)
    return None


def why_waits(job: Job) -> str | None:
    """Describes for people which ranks the others wait for."""
    found = _waited_in(job) if job.wait is not None else None
    if found is None:
        return None
    world, step = found
    missing = [seat for seat in _seats(job, world) if not seat.waits(world, step)]
    if not missing:
        return None
    reasons = ", ".join(dict.fromkeys(seat.trainer.paused for seat in missing if seat.trainer and seat.paused))
    return waits_for_ranks([seat.rank for seat in missing], step, reasons)


def watch_again_at_s(job: Job) -> list[float]:
    """When a round closes, a question is repeated, or the next round begins."""
    wait = job.wait
    if wait is None:
        return []
    timeouts = job.spec.timeouts
    rounds = [wait.asked_s + limit_s for limit_s in (timeouts.park_s, timeouts.suspect_s, LOCATE_EVERY_S)]
    return [*rounds, wait.sent_s + _repeat_s(job)]


def _waited_in(job: Job) -> tuple[Assignment, int] | None:
    """The newest world in which a trainer reports a long wait, and the step."""
    if not job.workers.overdue or job.record.phase not in (Phase.FORMING, Phase.RUNNING) or not is_decided(job):
        return None
    steps = [
        (trainer.generation, trainer.waiting)
        for worker in concerned(job)
        for trainer in worker.trainers
        if trainer.overdue
        and trainer.active  # a joining trainer waits in the next world before the others switch
        and trainer.waiting is not None
        and trainer.parked <= trainer.generation
    ]
    for world in (job.record.prepared, job.record.assignment):
        there = [step for generation, step in steps if world is not None and generation == world.generation]
        if world is not None and there:
            return world, max(there)
    return None


def _seats(job: Job, world: Assignment) -> list[Seat]:
    """Seats of ranks that have neither ended nor done the last step, on workers that are there."""
    seats = []
    for member in world.members:
        worker = job.workers.get(member.worker)
        if worker is None:
            continue
        locally = {trainer.local_rank: trainer for trainer in worker.trainers}
        ended = {exit_.rank for exit_ in worker.exits if worker.generation == world.generation} | job.round.clean
        for local, rank in enumerate(ranks_of(member)):
            trainer = locally.get(local)
            if rank not in ended and not (trainer is not None and trainer.finished):
                seats.append(Seat(rank, worker, trainer))
    return seats


def _learned(job: Job, world: Assignment, step: int, there: frozenset[Rank], missing: list[Seat], now_s: float) -> Wait:
    """Updates the wait. Each rank that enters, and each pause, restarts the time limit."""
    wait = job.wait
    if wait is None or (wait.generation, wait.step) != (world.generation, step):
        return Wait(world.generation, step, there, since_s=now_s, asked_s=now_s, sent_s=now_s)
    if there - wait.waiting or any(seat.paused for seat in missing):
        wait = replace(wait, since_s=now_s)
    return replace(wait, waiting=there)


def _restart_time_limits(job: Job, now_s: float) -> Job:
    """Restarts the time limits of a prepared or forming world, which cannot progress while ranks wait."""
    if job.record.prepared is not None:
        job = replace(job, round=replace(job.round, prepared_s=now_s))
    return replace(job, round=replace(job.round, assigned_s=now_s)) if job.record.phase is Phase.FORMING else job


def _new_round(wait: Wait, now_s: float) -> Wait:
    """Begins a round. Its number is unique, even if another master asks."""
    return replace(wait, asked_s=now_s, number=max(1, int(now_s * 1000)), is_judged=False)


def _ask(job: Job, wait: Wait, now_s: float) -> Watched:
    wait = replace(wait, sent_s=now_s)
    return replace(job, wait=wait), [], [Publish(Locate(job.name, wait.generation, wait.number))]


def _repeat_s(job: Job) -> float:
    return job.spec.timeouts.park_s / LOCATES_IN_TIME


def _closes_s(job: Job, wait: Wait, everybody: list[Seat]) -> float:
    """When the round closes: later if no worker has answered, because probably the question did not arrive."""
    timeouts = job.spec.timeouts
    answered = any(seat.answered(wait.number) for seat in everybody)
    return wait.asked_s + (timeouts.park_s if answered else max(timeouts.park_s, timeouts.suspect_s))


def _why_silent(job: Job, seat: Seat, wait: Wait, now_s: float) -> str:
    missed = f"the others wait for rank {seat.rank} in the all-reduce of step {wait.step}"
    if last_heard_s(job, seat.worker) > wait.asked_s:
        return f"{TRAINER_STOPPED}, and {missed}"
    return f"did not answer within {now_s - wait.asked_s:.1f} s, and {missed}"


def _end_stalled(job: Job, wait: Wait, everybody: list[Seat], missing: list[Seat], now_s: float) -> list[JobEffect]:
    """Ends stalled ranks. Only answers to a question after the time limit count: older ones may be outdated."""
    if job.storage.saved != job.record:
        return []
    ranks = [
        seat.rank
        for seat in missing
        if seat.answered(wait.number)
        and not seat.paused
        and wait.asked_s >= wait.since_s + _stall_s(job, seat, everybody)
    ]
    if not ranks:
        return []
    why = not_entered(wait.step, now_s - wait.since_s)
    return [Publish(EndStalled(job.name, wait.generation, tuple(ranks), why))]


def _stall_s(job: Job, seat: Seat, everybody: list[Seat]) -> float:
    given = job.spec.timeouts.stall_s
    if given is not None:
        return given
    if seat.trainer is None or not seat.trainer.step_s:
        return STALL_UNMEASURED_S
    return max(STALL_LEAST_S, STALL_STEPS * max(each.trainer.step_s for each in everybody if each.trainer is not None))
