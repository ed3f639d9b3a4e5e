"""Rules for scripts without the SDK, which every change of the world restarts.

A restart that only makes the world larger waits for a good moment: a fresh checkpoint, or the end of the world's
minimum life (`workers.settle_s`, by default a multiple of what a restart was measured to cost). Losses, smaller worlds
and what a person asked for never wait.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from controlplane.job.live.trainers import lives_on
from controlplane.job.membership import why_larger, why_without_some
from controlplane.job.queries import is_decided, member_of, unheard
from controlplane.job.reload import NEW_CODE
from controlplane.job.sentences import count
from controlplane.job.state import Job, Start
from controlplane.job.workers import Worker
from messages.records import Phase

LIFE_IN_RESTARTS = 20
LIFE_AT_MOST_S = 600.0
FRESH_S = 5.0
"""Seconds after a checkpoint in which a restart repeats little."""


@dataclass(frozen=True, slots=True)
class Restart:
    why: str | None
    """None: not now."""
    waits: str = ""
    """What workers wait for that could join."""
    at_s: float | None = None
    """When they are admitted at the latest."""


def came_further(job: Job, at_s: float, *, by_step: bool = False) -> Job:
    """The present world was seen to run, to have met, or to have completed its first step: its start took until now."""
    if job.script.start.has_step:
        return job
    took_s = at_s - job.round.assigned_s if job.round.assigned_s is not None else 0.0
    cost_s = job.script.start.parking_s + took_s
    return replace(
        job, script=replace(job.script, start=replace(job.script.start, up_s=at_s, cost_s=cost_s, has_step=by_step))
    )


def next_start(job: Job) -> Start:
    """The measurement of a world that is about to begin."""
    return Start(
        parking_s=job.script.start.parking_s, cost_before_s=job.script.start.cost_s or job.script.start.cost_before_s
    )


def has_first_step(job: Job, heard: Worker) -> bool:
    """A member of the running world completed a step, and nobody was known to have."""
    runs = job.record.phase is Phase.RUNNING and is_decided(job)
    in_world = heard.generation == job.record.generation and member_of(job, heard.worker) is not None
    return runs and in_world and heard.step is not None and not job.script.start.has_step


def has_fresh_checkpoint(job: Job, known: Worker, heard: Worker) -> bool:
    before = known.checkpoints if known.generation == heard.generation else 0
    is_known = known.seq >= 0  # a master that has just taken over does not know how old it is
    return is_known and heard.generation == job.record.generation and heard.checkpoints > before


def restart_cost_s(job: Job) -> float:
    """What the start of the present world has cost so far, or that of the one before if it was more."""
    return max(job.script.start.cost_s, job.script.start.cost_before_s)


def grows_at_s(job: Job, now_s: float) -> float:
    """When more workers may be admitted if nothing else happens."""
    fresh = job.script.checkpointed_s is not None and now_s - job.script.checkpointed_s <= FRESH_S
    if fresh or job.script.grows_at_once or job.script.start.up_s is None:
        return now_s
    settle_s = job.spec.workers.settle_s
    if settle_s is None:
        settle_s = min(LIFE_IN_RESTARTS * restart_cost_s(job), LIFE_AT_MOST_S)
    return job.script.start.up_s + settle_s


def may_restart(job: Job) -> bool:
    """A restart could improve the world. Not worth it once ranks have begun to finish.

    Trainers that live through changes are not ended for it: their world changes in place once all of them are in it."""
    return not (job.round.clean or lives_on(job) or unheard(job))


def why_restart(job: Job, candidates: list[Worker], now_s: float) -> Restart:
    """Why the scripts are restarted now; else what workers wait for that could join them, and until when."""
    why = NEW_CODE if job.record.outdated else why_without_some(job, candidates)
    growth = why_larger(job, candidates) if why is None else None
    at_s = grows_at_s(job, now_s)
    if growth is None or now_s >= at_s:
        return Restart(why or growth)
    return Restart(None, why_not_admitted(job, candidates, at_s, now_s), at_s)


def why_not_admitted(job: Job, candidates: list[Worker], at_s: float, now_s: float) -> str:
    waiting = [worker for worker in candidates if member_of(job, worker.worker) is None]
    minutes = round((at_s - now_s) / 60)
    when = f"in about {minutes} min" if minutes > 1 else "within a minute"
    wait = "waits" if len(waiting) == 1 else "wait"
    return f"{count(len(waiting), 'worker')} {wait} to be admitted: at the next checkpoint, or {when}"
