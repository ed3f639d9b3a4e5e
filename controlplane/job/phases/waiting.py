"""Phase `waiting`: a job without a world waits until it can form one, and reports what it waits for."""

from controlplane.job import texts
from controlplane.job.live.trainers import live_candidates, survivors, top
from controlplane.job.overdue import unparked
from controlplane.job.queries import chosen, coming, is_decided, unheard, warming
from controlplane.job.ranks import whole_ranks
from controlplane.job.sharing import capped, clusters_agree
from controlplane.job.state import Job
from controlplane.job.texts import workers_are
from controlplane.job.turn import Turn
from controlplane.job.workers import Worker
from messages.ids import Generation
from messages.records import Phase


def from_waiting(turn: Turn) -> bool:
    if turn.record.stop_why is not None and unparked(turn.job):
        return turn.reshape(turn.record.stop_why)
    if turn.record.stop_why is not None:
        return turn.end(Phase.STOPPED, turn.record.stop_why)
    unfit = turn.job.failures.unfit
    if unfit.workers > turn.job.spec.failures.max:
        return turn.end(Phase.FAILED, texts.could_not_train(unfit.workers, unfit.why))
    if turn.halt_again():
        return True
    wait = what_to_wait_for(turn.job, turn.now_s)
    if wait is not None:
        return turn.say(wait)
    generation = turn.record.generation
    if generation == 0 or is_decided(turn.job) or top(turn.job) > generation:
        generation = Generation(top(turn.job) + 1)
    return turn.set(phase=Phase.FORMING, generation=generation, why="waiting for the store")


def what_to_wait_for(job: Job, now_s: float) -> str | None:
    """What the job waits for; None if it can form a world."""
    spec, record = job.spec, job.record
    if record.paused is not None:
        return texts.waits_for_budget(record.paused, has_trained=record.formed > 0)
    state_is_kept = bool(survivors(job))
    unknown = unheard(job)
    patience_s = spec.timeouts.suspect_s if state_is_kept else spec.timeouts.ready_s
    if unknown and now_s - job.pause.waiting_since_s < patience_s:
        return texts.waits_to_hear(unknown)
    if state_is_kept:
        return _what_survivors_wait_for(job)
    if job.pause.retry_s is not None and now_s < job.pause.retry_s:
        return f"failure {record.failures} of {spec.failures.max}; the job restarts in a moment"
    candidates, late = chosen(job), coming(job, now_s)
    obstacles = _what_stands_in_the_way(job)
    if len(candidates) < spec.workers.least:
        return f"{texts.too_few_ready(_who_is_here(job, len(candidates)), spec.workers.least)}{obstacles}"
    if whole_ranks(candidates, spec.replica) == 0:
        return f"{workers_are(len(candidates))} ready, too few ranks for one replica of {spec.replica}"
    if len(candidates) < record.wanted and _first_world_waits(job, late, now_s):
        return f"{texts.more_wanted(_who_is_here(job, len(candidates)), record.wanted)}{obstacles}"
    return None


def _who_is_here(job: Job, ready: int) -> str:
    """How many workers are ready, import torch, or were started but not heard yet."""
    heard = [worker.seq >= 0 for worker in warming(job)]
    return texts.workers_here(ready, heard.count(True), heard.count(False), is_any_known=bool(job.workers))


def _what_survivors_wait_for(job: Job) -> str | None:
    """What workers with the state wait for; None if they can continue."""
    spec = job.spec
    candidates = live_candidates(job)
    if len(candidates) < spec.workers.least:
        return texts.too_few_warm(len(candidates), spec.workers.least) + _what_stands_in_the_way(job)
    if whole_ranks(candidates, spec.replica) == 0:
        return f"{workers_are(len(candidates))} warm, too few ranks for one replica of {spec.replica}"
    return None


def _what_stands_in_the_way(job: Job) -> str:
    """Known reasons why workers do not come."""
    clusters = job.clusters.items()
    refusals = [texts.refused_by(name, cluster.refusal) for name, cluster in clusters if cluster.refusal]
    last_gone = [texts.last_lost(why) for why in [*job.gone.values()][-1:]]
    shortage = [job.supply.shortage] if job.supply.shortage else []
    return "".join(f"; {reason}" for reason in (*shortage, *capped(job), *refusals, *last_gone))


def _first_world_waits(job: Job, late: list[Worker], now_s: float) -> bool:
    """True if the first world, or the first after a pause, waits for workers that are starting."""
    waited_s = now_s - job.pause.waiting_since_s
    is_asked = job.gathers_until_s is not None or not clusters_agree(job)
    unanswered = is_asked and waited_s < job.spec.timeouts.ready_s
    return (job.record.formed == 0 or job.pause.starts_again) and (bool(late) or unanswered)
