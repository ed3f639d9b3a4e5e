"""Learning: each event updates the state, without decisions. Late events and those for other workers change nothing."""

from dataclasses import replace
from typing import assert_never

from agents.worker import learn_trainers as trainers
from agents.worker.events import (
    AssignmentHeard,
    BusBack,
    BusLost,
    CheckpointReported,
    CheckpointWritten,
    EndStalledHeard,
    HaltHeard,
    HostLost,
    HostWarmed,
    InviteHeard,
    LocateHeard,
    NoticeCame,
    ReleaseHeard,
    StepCompleted,
    StopAsked,
    Ticked,
    TrainerAttached,
    TrainerDetached,
    TrainerExited,
    TrainerForked,
    TrainerForkFailed,
    TrainerSaid,
    TrainersSeen,
    TrainersStopped,
    WorkerEvent,
)
from agents.worker.live import is_parking, needs_trainers
from agents.worker.state import HostPhase, Leaving, Notice, Standing, WorkerState, own_place
from messages.ids import Epoch
from messages.workers import TrainerExit
from messages.worlds import Assignment, Halt
from runtime.backoff import pause_after


def learn(state: WorkerState, event: WorkerEvent) -> WorkerState:
    match event:
        case Ticked():
            return state
        case HostWarmed():
            return _host_warmed(state, event)
        case HostLost():
            return _host_lost(state, event)
        case TrainerForked():
            return trainers.forked(state, (event.generation, event.rank), event.pid)
        case TrainerForkFailed():
            failed = TrainerExit(rank=event.rank, code=1, error=f"could not be forked: {event.error}")
            return trainers.ended(state, [((event.generation, event.rank), failed)], event.at_s)
        case TrainerExited():
            birth = event.generation, event.exit.rank
            return trainers.ended(trainers.forked(state, birth), [(birth, event.exit)], event.at_s)
        case TrainersStopped():
            return trainers.stopped(state, event)
        case TrainerAttached():
            return trainers.attached(state, event)
        case TrainerSaid():
            return trainers.said(state, event)
        case TrainerDetached():
            return trainers.detached(state, event)
        case TrainersSeen():
            return trainers.seen(state, event)
        case StepCompleted():
            return trainers.step(state, event)
        case CheckpointReported():
            return trainers.checkpoint(state, event)
        case CheckpointWritten(_, checkpoint):
            return replace(state, progress=replace(state.progress, checkpoint=checkpoint))
        case AssignmentHeard():
            return _assigned(state, event)
        case HaltHeard():
            return _halted(state, event)
        case LocateHeard():
            return _locate(state, event)
        case EndStalledHeard():
            return _hear(state, event.epoch, event.at_s) if event.order.job == state.identity.job else state
        case InviteHeard():
            return _invited(state, event)
        case ReleaseHeard():
            return _released(state, event)
        case NoticeCame():
            return _noticed(state, event)
        case StopAsked():
            return _stop_asked(state, event)
        case BusLost():
            return _bus_lost(state, event.at_s)
        case BusBack(at_s):
            contact = replace(state.contact, connected=True, heard_at_s=at_s, heartbeat_due_s=at_s)
            return replace(state, contact=contact)
        case _:
            assert_never(event)


def _bus_lost(state: WorkerState, at_s: float) -> WorkerState:
    if not state.contact.connected:
        return state
    return replace(state, contact=replace(state.contact, connected=False, heard_at_s=at_s))


def _host_warmed(state: WorkerState, event: HostWarmed) -> WorkerState:
    if state.host.phase is not HostPhase.WARMING:
        return state
    return replace(state, host=replace(state.host, phase=HostPhase.WARM, since_s=event.at_s, was_warm=True))


def _host_lost(state: WorkerState, event: HostLost) -> WorkerState:
    if state.host.phase is HostPhase.ABSENT:
        return state
    rules = state.rules
    steady = state.host.phase is HostPhase.WARM and event.at_s - state.host.since_s >= rules.host_steady_s
    losses = 1 if steady else state.host.losses + 1
    backoff_s = pause_after(losses, rules.host_backoff_s, rules.host_backoff_max_s)
    how = host_lost(event.why)
    gone = [(trainer.birth, TrainerExit(rank=trainer.rank, signal="SIGKILL", error=how)) for trainer in state.trainers]
    host = replace(
        state.host,
        phase=HostPhase.ABSENT,
        since_s=event.at_s,
        losses=losses,
        why=event.why,
        is_unfit=event.is_unfit,
        start_due_s=event.at_s + backoff_s,
    )
    return replace(trainers.ended(state, gone, event.at_s), host=host, stop=None)


def host_lost(why: str) -> str:
    return f"host lost: {why}"


def is_newer(state: WorkerState, event: AssignmentHeard | HaltHeard) -> bool:
    """The fence: True for a newer halt or assignment. An assignment answers the halt of its own generation."""
    if (event.epoch or 0) < state.contact.epoch:
        return False
    if isinstance(event, HaltHeard):
        return event.halt.generation > state.fence
    generation = event.assignment.generation
    known = state.pending or state.world
    answers_halt = generation == state.fence and (known is None or known.generation < generation)
    return generation > state.fence or answers_halt


def _assigned(state: WorkerState, event: AssignmentHeard) -> WorkerState:
    assignment = event.assignment
    if assignment.job != state.identity.job:
        return state
    if is_newer(state, event) and _can_be(state, assignment):
        state = replace(
            state,
            fence=assignment.generation,
            pending=assignment,
            ending=replace(state.ending, grace_s=assignment.stop_grace_s, by_s=None),
        )
    return _hear(state, event.epoch, event.at_s)


def _can_be(state: WorkerState, assignment: Assignment) -> bool:
    place = own_place(state.identity.worker, assignment)
    if place is None:
        return True
    return 1 <= place.ranks <= state.identity.slots and 0 <= place.first_rank <= assignment.world_size - place.ranks


def _halted(state: WorkerState, event: HaltHeard) -> WorkerState:
    halt = event.halt
    if halt.job != state.identity.job:
        return state
    if is_newer(state, event):
        look_due_s = event.at_s + state.rules.look_s
        state = replace(
            state,
            fence=halt.generation,
            pending=None,
            ending=replace(state.ending, grace_s=halt.stop_grace_s, by_s=_ends_by_s(state, halt, event.at_s)),
            observation=replace(state.observation, due_s=look_due_s),
        )
    elif _ends_sooner(state, halt):
        state = replace(
            state,
            stop=None,
            ending=replace(state.ending, grace_s=halt.stop_grace_s, by_s=_ends_by_s(state, halt, event.at_s)),
        )
    elif halt.generation == state.fence and is_parking(state):
        # A repeated halt: it was first sent some time ago, so look at the trainers at once.
        state = replace(state, observation=replace(state.observation, due_s=event.at_s))
    return _hear(state, event.epoch, event.at_s)


def _ends_sooner(state: WorkerState, halt: Halt) -> bool:
    """True for a repeated halt that ends the world, or gives less time. A halt that comes after the assignment of its
    own generation is late and is ignored."""
    is_answered = state.world is not None and state.world.generation >= halt.generation
    if halt.generation != state.fence or state.pending is not None or is_answered or not halt.ends:
        return False
    return state.ending.by_s is None or halt.stop_grace_s < state.ending.grace_s


def _ends_by_s(state: WorkerState, halt: Halt, at_s: float) -> float | None:
    return at_s + min(state.rules.unparked_s, halt.stop_grace_s / 2) if halt.ends else None


def _invited(state: WorkerState, event: InviteHeard) -> WorkerState:
    invite = event.invite
    if invite.job != state.identity.job:
        return state
    current = (event.epoch or 0) >= state.contact.epoch
    if current and state.identity.worker in invite.workers and needs_trainers(state):
        state = replace(state, invitation=replace(state.invitation, world=invite.world, terms=invite.terms))
    return _hear(state, event.epoch, event.at_s)


def _locate(state: WorkerState, event: LocateHeard) -> WorkerState:
    if event.locate.job != state.identity.job:
        return state
    if (event.epoch or 0) >= state.contact.epoch:
        state = replace(state, observation=replace(state.observation, locate=event.locate.number, is_located=False))
    return _hear(state, event.epoch, event.at_s)


def _released(state: WorkerState, event: ReleaseHeard) -> WorkerState:
    release = event.release
    if release.job != state.identity.job:
        return state
    current = (event.epoch or 0) >= state.contact.epoch
    is_meant = release.everybody or state.identity.worker in release.workers
    if current and state.leaving is None and is_meant:
        grace_s = state.ending.grace_s if release.is_last else _release_grace_s(state)
        state = replace(state, leaving=Leaving(f"released: {release.why}", 0, grace_s))
    return _hear(state, event.epoch, event.at_s)


def _release_grace_s(state: WorkerState) -> float:
    """Returns the grace for a release. Trainers outside of any world have nothing to finish."""
    at_rest = state.standing is not Standing.MEMBER and all(trainer.attached is not None for trainer in state.trainers)
    return min(state.ending.grace_s, state.rules.parked_grace_s) if at_rest else state.ending.grace_s


def _hear(state: WorkerState, epoch: Epoch | None, at_s: float) -> WorkerState:
    known = state.contact.epoch
    return replace(state, contact=replace(state.contact, epoch=max(known, epoch or known), heard_at_s=at_s))


def _noticed(state: WorkerState, event: NoticeCame) -> WorkerState:
    deadline_s = event.at_s + max(0.0, event.remaining_s)
    if state.notice is not None:
        return replace(state, notice=replace(state.notice, deadline_s=min(state.notice.deadline_s, deadline_s)))
    return replace(state, notice=Notice(deadline_s, event.source))


def _stop_asked(state: WorkerState, event: StopAsked) -> WorkerState:
    """Starts to leave. A second request ends all trainers at once."""
    if state.leaving is None:
        grace_s = state.ending.grace_s if event.grace_s is None else max(0.0, event.grace_s)
        return replace(state, leaving=Leaving(event.why, 0, grace_s))
    if state.leaving.grace_s == 0:
        return state
    return replace(state, leaving=replace(state.leaving, grace_s=0.0), stop=None)
