"""A job without a world waits until it can have one, and says what for."""

from controlplane.job.live.trainers import live_candidates, survivors, top
from controlplane.job.overdue import unparked
from controlplane.job.queries import chosen, coming, is_decided, unheard, warming
from controlplane.job.ranks import whole_ranks
from controlplane.job.sentences import count, name_workers, workers_are
from controlplane.job.sharing import capped, clusters_agree
from controlplane.job.state import Job
from controlplane.job.turn import Turn
from controlplane.job.workers import Worker
from messages.ids import Generation
from messages.records import Phase, Record


def from_waiting(turn: Turn) -> bool:
    if turn.record.stop_why is not None and unparked(turn.job):
        return turn.reshape(turn.record.stop_why)
    if turn.record.stop_why is not None:
        return turn.end(Phase.STOPPED, turn.record.stop_why)
    unfit = turn.job.failures.unfit
    if unfit.workers > turn.job.spec.failures.max:
        why = f"{count(unfit.workers, 'worker')} in a row could not train: {unfit.why}"
        return turn.end(Phase.FAILED, why)
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
    """In words; None if it waits for nothing."""
    spec, record = job.spec, job.record
    if record.paused is not None:
        return _what_a_pause_means(record)
    state_is_kept = bool(survivors(job))
    unknown = unheard(job)
    patience_s = spec.timeouts.suspect_s if state_is_kept else spec.timeouts.ready_s
    if unknown and now_s - job.pause.waiting_since_s < patience_s:
        return f"waiting to hear of {name_workers(unknown)}"
    if state_is_kept:
        return _what_survivors_wait_for(job)
    if job.pause.retry_s is not None and now_s < job.pause.retry_s:
        return f"failure {record.failures} of {spec.failures.max}: starting again in a moment"
    candidates, late = chosen(job), coming(job, now_s)
    obstacles = _what_stands_in_the_way(job)
    if len(candidates) < spec.workers.least:
        must_be = "must be" if candidates and not warming(job) else "must be ready"
        return f"{_who_is_here(job, len(candidates))}; at least {spec.workers.least} {must_be}{obstacles}"
    if whole_ranks(candidates, spec.replica) == 0:
        return f"{workers_are(len(candidates))} ready, too few ranks for one replica of {spec.replica}"
    if len(candidates) < record.wanted and _first_world_waits(job, late, now_s):
        return f"{_who_is_here(job, len(candidates))}; {record.wanted} are wanted{obstacles}"
    return None


def _who_is_here(job: Job, ready: int) -> str:
    """How many workers are ready, import torch, or were started and not heard yet."""
    heard = [worker.seq >= 0 for worker in warming(job)]
    counts = {"ready": ready, "importing torch": heard.count(True), "starting": heard.count(False)}
    parts = [(number, state) for state, number in counts.items() if number]
    if not parts:
        return "no worker is ready" if job.workers else "no worker is here yet"
    (number, state), *others = parts
    first = f"{workers_are(number)} {state}"
    return ", ".join([first, *(f"{number} {'is' if number == 1 else 'are'} {state}" for number, state in others)])


def _what_a_pause_means(record: Record) -> str:
    later = "goes on from its newest checkpoint, or begins again if it has none," if record.formed else "begins"
    return f"its budget is reached: {record.paused}; training {later} when the budget is raised"


def _what_survivors_wait_for(job: Job) -> str | None:
    """For others to join them, while they keep the state."""
    spec = job.spec
    candidates = live_candidates(job)
    if len(candidates) < spec.workers.least:
        known = _what_stands_in_the_way(job)
        return f"{len(candidates)} of at least {workers_are(spec.workers.least)} warm; the state is kept{known}"
    if whole_ranks(candidates, spec.replica) == 0:
        return f"{workers_are(len(candidates))} warm, too few ranks for one replica of {spec.replica}"
    return None


def _what_stands_in_the_way(job: Job) -> str:
    """What is known of why workers do not come."""
    clusters = job.clusters.items()
    refusals = [f"cluster {name} refused: {cluster.refusal}" for name, cluster in clusters if cluster.refusal]
    last_gone = [f"the last that went: {why}" for why in [*job.gone.values()][-1:]]
    shortage = [job.supply.shortage] if job.supply.shortage else []
    return "".join(f"; {reason}" for reason in (*shortage, *capped(job), *refusals, *last_gone))


def _first_world_waits(job: Job, late: list[Worker], now_s: float) -> bool:
    """For those that are known to come, within bounds; later worlds wait for nobody."""
    waited_s = now_s - job.pause.waiting_since_s
    is_asked = job.gathers_until_s is not None or not clusters_agree(job)
    unanswered = is_asked and waited_s < job.spec.timeouts.ready_s
    return (job.record.formed == 0 or job.pause.begins_anew) and (bool(late) or unanswered)
