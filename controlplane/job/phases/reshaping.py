"""Phase `reshaping`: a world is halted. When all members have parked, the job decides what follows."""

from msgspec.structs import replace

from controlplane.job.live.trainers import finishing, survivors
from controlplane.job.overdue import (
    OVERSLEPT_S,
    some_switched,
    too_late,
    unparked,
    unparked_in_time,
    unreachable,
)
from controlplane.job.queries import all_clean, world_size
from controlplane.job.reload import tries_new_code
from controlplane.job.stopping import grace_s, is_ending
from controlplane.job.texts import (
    NOT_ENDED,
    all_exited,
    describe_exit,
    excerpt_of,
    failures_allowed,
    waits_to,
    waits_to_save,
)
from controlplane.job.turn import Turn
from messages.records import Phase
from runtime.backoff import pause_after


def from_reshaping(turn: Turn) -> bool:
    _remove_unparked(turn)
    late = unparked(turn.job)
    overdue = [
        *unreachable(turn.job, late, turn.now_s),
        *too_late(turn.job, late, NOT_ENDED, turn.now_s),
    ]
    if turn.remove(overdue):
        late = unparked(turn.job)
    if late and is_ending(turn.job):
        return turn.say(f"{turn.record.why}; {waits_to_save(late, grace_s(turn.job))}")
    if late:
        return turn.say(f"{turn.record.why}; {waits_to('park', late)}")
    return _close_round(turn)


def _close_round(turn: Turn) -> bool:
    """Decides what follows, now that all members have parked or are gone: the script failed, or a peer was lost."""
    if all_clean(turn.job):
        return turn.succeed(all_exited(world_size(turn.job)))
    if turn.record.stop_why is not None:
        return turn.end(Phase.STOPPED, turn.record.stop_why)
    if finishing(turn.job) and not survivors(turn.job) and turn.job.round.failure is None:
        return turn.succeed("every rank completed all steps")
    _settle_prepared(turn)
    parking_s = turn.now_s - (turn.job.round.assigned_s or turn.now_s)
    turn.job = replace(
        turn.job,
        pause=replace(turn.job.pause, waiting_since_s=turn.now_s),
        script=replace(turn.job.script, start=replace(turn.job.script.start, parking_s=parking_s)),
    )
    if turn.record.paused is not None:
        turn.set(checkpoint=turn.job.checkpoint)
    continues = bool(survivors(turn.job))
    failure = turn.job.round.failure or (turn.job.round.quit if continues else None)
    witness = failure is not None and failure.exit.peer_lost and (turn.job.round.store_lost or continues)
    excused = turn.job.round.lost_member and failure is not None and not failure.exit.stalled
    world = turn.record.assignment
    is_counted = world is not None and world.generation == turn.job.failures.judged
    if failure is None or excused or witness or is_counted:
        return turn.set(phase=Phase.WAITING)
    why = describe_exit(failure.exit)
    if continues and tries_new_code(turn.job, failure.worker):
        turn.job = replace(turn.job, failures=replace(turn.job.failures, joining=failure))
        return turn.set(phase=Phase.WAITING, why=f"{why}, with the new code; the others continue")
    turn.job = replace(turn.job, failures=replace(turn.job.failures, counted=failure))
    limits = turn.job.spec.failures
    failures = turn.record.failures + 1
    if failures > limits.max:
        turn.set(failures=failures, failed_tail=excerpt_of(failure.exit))
        return turn.end(Phase.FAILED, f"{why}; {failures_allowed(limits.max)}")
    if continues:
        return turn.set(phase=Phase.WAITING, failures=failures, why=f"{why}; the others continue")
    pause_s = pause_after(failures, limits.backoff_s, limits.backoff_max_s)
    turn.job = replace(turn.job, pause=replace(turn.job.pause, retry_s=turn.now_s + pause_s))
    return turn.set(phase=Phase.WAITING, failures=failures, why=f"{why}; the job restarts in {pause_s:g} s")


def _settle_prepared(turn: Turn) -> None:
    """Makes the prepared world current if a trainer switched to it; drops it otherwise."""
    prepared = turn.record.prepared
    if prepared is None:
        return
    if some_switched(turn.job, prepared):
        turn.job = replace(turn.job, round=replace(turn.job.round, clean=frozenset()))
        turn.set(assignment=prepared, prepared=None)
    else:
        turn.set(prepared=None)


def _remove_unparked(turn: Turn) -> None:
    """Removes workers that did not park in time. If this process was late itself, it extends their deadline."""
    if turn.now_s < turn.job.judges_from_s:
        return
    late, slept = unparked_in_time(turn.job, turn.now_s)
    if slept and turn.job.round.halted_s is not None:
        turn.job = replace(
            turn.job, round=replace(turn.job.round, halted_s=turn.job.round.halted_s + slept + OVERSLEPT_S)
        )
        return
    turn.remove(late)
