"""Second half of a decision: compares the state with what is wanted, and changes phase and world."""

from msgspec.structs import replace

from controlplane.job.changes import changes_in_place
from controlplane.job.commands import ask, is_unconfirmed, repeats_halt_at_s
from controlplane.job.live.next_world import abandon_at_s, hurry_at_s
from controlplane.job.live.stalls import watch, watch_again_at_s
from controlplane.job.live.trainers import is_over
from controlplane.job.overdue import park_by_s, silent
from controlplane.job.phases.forming import decide_world, from_forming
from controlplane.job.phases.reshaping import from_reshaping
from controlplane.job.phases.running import from_running
from controlplane.job.phases.waiting import from_waiting
from controlplane.job.queries import is_decided
from controlplane.job.sharing import judge_shares
from controlplane.job.turn import Turn
from controlplane.job.wants import want_nodes
from messages.records import Phase

BUSY_TICK_S = 0.5
QUIET_TICK_S = 1.0


def reconcile(turn: Turn) -> None:
    if turn.job.gathers_until_s is not None and turn.now_s >= turn.job.gathers_until_s:
        turn.job = replace(turn.job, gathers_until_s=None)
    if not turn.record.phase.ended:
        turn.remove(silent(turn.job, turn.now_s))
        _note_the_end(turn)
        _watch(turn)
        while _advance(turn):
            pass
        turn.job = judge_shares(turn.job, turn.now_s)
    turn.job, asked = ask(turn.job, turn.now_s)
    turn.job, wanted = want_nodes(turn.job, turn.now_s)
    turn.effects += [*asked, *wanted]


def wake_at_s(turn: Turn) -> float | None:
    """When to decide again without an event."""
    busy = is_unconfirmed(turn.job)
    if turn.record.phase.ended and not busy:
        return None
    wake_s = turn.now_s + (BUSY_TICK_S if busy else QUIET_TICK_S)
    return min([wake_s, *(at_s for at_s in _deadlines(turn) if at_s > turn.now_s)])


def _deadlines(turn: Turn) -> list[float]:
    deadlines = [turn.job.pause.retry_s, park_by_s(turn.job), abandon_at_s(turn.job), repeats_halt_at_s(turn.job)]
    deadlines += [turn.grows_at_s, turn.job.judges_from_s, turn.job.gathers_until_s]
    in_world = turn.record.phase in (Phase.RUNNING, Phase.FORMING)
    if turn.job.workers.noticed and in_world and changes_in_place(turn.job):
        deadlines += hurry_at_s(turn.job).values()
    deadlines += watch_again_at_s(turn.job)
    return [at_s for at_s in deadlines if at_s is not None]


def _advance(turn: Turn) -> bool:
    """Performs one transition if one is due. True if more may be due."""
    match turn.record.phase:
        case Phase.WAITING:
            return from_waiting(turn)
        case Phase.FORMING:
            return from_forming(turn) if is_decided(turn.job) else decide_world(turn)
        case Phase.RUNNING:
            return from_running(turn)
        case Phase.RESHAPING:
            return from_reshaping(turn)
        case Phase.SUCCEEDED | Phase.FAILED | Phase.STOPPED:
            return False


def _note_the_end(turn: Turn) -> None:
    over_s = (turn.job.round.over_s or turn.now_s) if is_over(turn.job) else None
    if over_s != turn.job.round.over_s:
        turn.job = replace(turn.job, round=replace(turn.job.round, over_s=over_s))


def _watch(turn: Turn) -> None:
    turn.job, removed, asked = watch(turn.job, turn.now_s)
    turn.effects += asked
    turn.remove(removed)
