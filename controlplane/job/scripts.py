"""Rules for scripts without the SDK, which every change of the world restarts.

A restart that only makes the world larger waits for a fresh checkpoint or the end of the world's minimum life
(`workers.settle_s`, by default a multiple of the measured cost of a restart). Losses, smaller worlds and requests of a
person never wait.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from controlplane.job.live.trainers import lives_on
from controlplane.job.membership import why_larger, why_without_some
from controlplane.job.queries import is_decided, member_of, unheard
from controlplane.job.reload import NEW_CODE
from controlplane.job.state import Job, Start
from controlplane.job.texts import waits_for_admission
from controlplane.job.workers import Worker
from messages.records import Phase

LIFE_IN_RESTARTS = 20
LIFE_AT_MOST_S = 600.0
FRESH_S = 5.0
"""Seconds after a checkpoint in which a restart repeats little."""


@dataclass(frozen=True, slots=True)
class Restart:
    why: str | None
    """None: no restart now."""
    waits: str = ""
    """What workers that could join wait for."""
    at_s: float | None = None
    """When they are admitted at the latest."""


def note_progress(job: Job, at_s: float, *, by_step: bool = False) -> Job:
    """Notes that the start of the current world progressed: it runs, its ranks met, or it completed its first step."""
    if job.script.start.has_step:
        return job
    took_s = at_s - job.round.assigned_s if job.round.assigned_s is not None else 0.0
    cost_s = job.script.start.parking_s + took_s
    return replace(
        job, script=replace(job.script, start=replace(job.script.start, up_s=at_s, cost_s=cost_s, has_step=by_step))
    )


def next_start(job: Job) -> Start:
    """Measurement of the start of the next world."""
    return Start(
        parking_s=job.script.start.parking_s, cost_before_s=job.script.start.cost_s or job.script.start.cost_before_s
    )


def has_first_step(job: Job, heard: Worker) -> bool:
    """True if a member of the running world completed its first known step."""
    runs = job.record.phase is Phase.RUNNING and is_decided(job)
    in_world = heard.generation == job.record.generation and member_of(job, heard.worker) is not None
    return runs and in_world and heard.step is not None and not job.script.start.has_step


def has_fresh_checkpoint(job: Job, known: Worker, heard: Worker) -> bool:
    before = known.checkpoints if known.generation == heard.generation else 0
    is_known = known.seq >= 0  # after a takeover the age of a checkpoint is unknown
    return is_known and heard.generation == job.record.generation and heard.checkpoints > before


def restart_cost_s(job: Job) -> float:
    """Seconds that the start of the current or of the previous world cost, whichever is more."""
    return max(job.script.start.cost_s, job.script.start.cost_before_s)


def grows_at_s(job: Job, now_s: float) -> float:
    """When more workers may be admitted, if nothing else happens."""
    fresh = job.script.checkpointed_s is not None and now_s - job.script.checkpointed_s <= FRESH_S
    if fresh or job.script.grows_at_once or job.script.start.up_s is None:
        return now_s
    settle_s = job.spec.workers.settle_s
    if settle_s is None:
        settle_s = min(LIFE_IN_RESTARTS * restart_cost_s(job), LIFE_AT_MOST_S)
    return job.script.start.up_s + settle_s


def may_restart(job: Job) -> bool:
    """True if a restart may improve the world: no rank has finished, all members are heard, and none is live.

    The world of live trainers changes in place, so they are not restarted."""
    return not (job.round.clean or lives_on(job) or unheard(job))


def why_restart(job: Job, candidates: list[Worker], now_s: float) -> Restart:
    """Why the scripts restart now; else what workers that could join wait for, and until when."""
    why = NEW_CODE if job.record.outdated else why_without_some(job, candidates)
    growth = why_larger(job, candidates) if why is None else None
    at_s = grows_at_s(job, now_s)
    if growth is None or now_s >= at_s:
        return Restart(why or growth)
    return Restart(None, why_not_admitted(job, candidates, at_s, now_s), at_s)


def why_not_admitted(job: Job, candidates: list[Worker], at_s: float, now_s: float) -> str:
    waiting = [worker for worker in candidates if member_of(job, worker.worker) is None]
    return waits_for_admission(len(waiting), at_s - now_s)
