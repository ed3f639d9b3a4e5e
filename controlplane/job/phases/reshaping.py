"""A world is halted: once all have parked it is known why, and what comes next."""

from msgspec.structs import replace

from controlplane.job.learn_workers import backoff_s
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
from controlplane.job.sentences import (
    all_exited,
    describe_exit,
    excerpt_of,
    failures_allowed,
    name_workers,
)
from controlplane.job.stopping import grace_s, is_ending
from controlplane.job.turn import Turn
from messages.records import Phase


def from_reshaping(turn: Turn) -> bool:
    _remove_unparked(turn)
    late = unparked(turn.job)
    overdue = [
        *unreachable(turn.job, late, turn.now_s),
        *too_late(turn.job, late, "did not end its trainers", turn.now_s),
    ]
    if turn.remove(overdue):
        late = unparked(turn.job)
    if late and is_ending(turn.job):
        wait = f"waiting up to {grace_s(turn.job):g} s for {name_workers(late)} to end the loop body and save"
        return turn.say(f"{turn.record.why}; {wait}")
    if late:
        return turn.say(f"{turn.record.why}; waiting for {name_workers(late)} to park")
    return _close_round(turn)


def _close_round(turn: Turn) -> bool:
    """Everybody has parked or is gone: only now is it known whether the script failed or a peer was lost."""
    if all_clean(turn.job):
        return turn.succeed(all_exited(world_size(turn.job)))
    if turn.record.stop_why is not None:
        return turn.end(Phase.STOPPED, turn.record.stop_why)
    if finishing(turn.job) and not survivors(turn.job) and turn.job.round.failure is None:
        return turn.succeed("all steps are done, and every rank had them")
    _settle_prepared(turn)
    parking_s = turn.now_s - (turn.job.round.assigned_s or turn.now_s)
    turn.job = replace(
        turn.job,
        pause=replace(turn.job.pause, waiting_since_s=turn.now_s),
        script=replace(turn.job.script, start=replace(turn.job.script.start, parking_s=parking_s)),
    )
    if turn.record.paused is not None:
        turn.set(checkpoint=turn.job.checkpoint)
    goes_on = bool(survivors(turn.job))
    failure = turn.job.round.failure or (turn.job.round.quit if goes_on else None)
    witness = failure is not None and failure.exit.peer_lost and (turn.job.round.store_lost or goes_on)
    excused = turn.job.round.lost_member and failure is not None and not failure.exit.stalled
    world = turn.record.assignment
    is_counted = world is not None and world.generation == turn.job.failures.judged
    if failure is None or excused or witness or is_counted:
        return turn.set(phase=Phase.WAITING)
    why = describe_exit(failure.exit)
    if goes_on and tries_new_code(turn.job, failure.worker):
        turn.job = replace(turn.job, failures=replace(turn.job.failures, joining=failure))
        return turn.set(phase=Phase.WAITING, why=f"{why}, with the new code: the others go on")
    turn.job = replace(turn.job, failures=replace(turn.job.failures, counted=failure))
    limits = turn.job.spec.failures
    failures = turn.record.failures + 1
    if failures > limits.max:
        turn.set(failures=failures, failed_tail=excerpt_of(failure.exit))
        return turn.end(Phase.FAILED, f"{why}; {failures_allowed(limits.max)}")
    if goes_on:
        return turn.set(phase=Phase.WAITING, failures=failures, why=f"{why}: the others go on")
    pause_s = backoff_s(limits, failures)
    turn.job = replace(turn.job, pause=replace(turn.job.pause, retry_s=turn.now_s + pause_s))
    return turn.set(phase=Phase.WAITING, failures=failures, why=f"{why}: starting again in {pause_s:g} s")


def _settle_prepared(turn: Turn) -> None:
    """If anybody went over, the prepared world is the one that was halted; else it has never been."""
    prepared = turn.record.prepared
    if prepared is None:
        return
    if some_switched(turn.job, prepared):
        turn.job = replace(turn.job, round=replace(turn.job.round, clean=frozenset()))
        turn.set(assignment=prepared, prepared=None)
    else:
        turn.set(prepared=None)


def _remove_unparked(turn: Turn) -> None:
    """Unless this process was itself too slow to hear them: then they have another moment."""
    if turn.now_s < turn.job.judges_from_s:
        return
    late, slept = unparked_in_time(turn.job, turn.now_s)
    if slept and turn.job.round.halted_s is not None:
        turn.job = replace(
            turn.job, round=replace(turn.job.round, halted_s=turn.job.round.halted_s + slept + OVERSLEPT_S)
        )
        return
    turn.remove(late)
