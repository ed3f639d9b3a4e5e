"""Whatever happens, in whatever order, the worker-agent's core keeps its invariants."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.worker import invariants
from agents.worker.decide import decide
from agents.worker.effects import (
    AbortTrainer,
    ForkTrainers,
    Leave,
    SendHeartbeat,
    StopTrainers,
    TellFact,
    TellTrainer,
    WorkerEffect,
)
from agents.worker.events import (
    AssignmentHeard,
    BusBack,
    BusLost,
    CheckpointReported,
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
from agents.worker.state import Standing, WorkerState, new_worker
from messages.ids import Epoch, Generation, Rank
from messages.workers import TrainerExit, TrainerStatus
from messages.worlds import EndStalled, Locate
from runtime.decision import Decision
from tests.worker.builders import (
    JOB,
    OTHER,
    OWN,
    a_halt,
    a_member,
    a_plan,
    a_release,
    a_repair,
    an_assignment,
    an_identity,
    an_invite,
)

GENERATIONS = st.integers(0, 4).map(Generation)
RANKS = st.integers(0, 2).map(Rank)
EPOCHS = st.one_of(st.none(), st.integers(0, 3).map(Epoch))
WORLDS = st.sampled_from(
    [
        (a_member(OWN, 0, 2),),
        (a_member(OTHER, 0), a_member(OWN, 1)),
        (a_member(OWN, 0), a_member(OTHER, 1)),
        (a_member(OTHER, 0, 2),),
    ]
)
EXITS = st.builds(TrainerExit, rank=RANKS, code=st.sampled_from([0, 1]), peer_lost=st.booleans())
AT = st.just(0.0)

EVENTS: st.SearchStrategy[WorkerEvent] = st.one_of(
    st.builds(Ticked, AT),
    st.builds(HostWarmed, AT),
    st.builds(HostLost, AT, st.just("gone")),
    st.builds(TrainerForked, AT, GENERATIONS, RANKS, st.just(7)),
    st.builds(TrainerForkFailed, AT, GENERATIONS, RANKS, st.just("no memory")),
    st.builds(TrainerExited, AT, GENERATIONS, EXITS),
    st.builds(TrainersStopped, AT, GENERATIONS),
    st.builds(StepCompleted, AT, GENERATIONS, RANKS, st.integers(0, 9)),
    st.builds(CheckpointReported, AT, GENERATIONS),
    st.builds(lambda g, w, e: AssignmentHeard(0.0, an_assignment(g, *w), e), st.integers(0, 4), WORLDS, EPOCHS),
    st.builds(lambda g, e: HaltHeard(0.0, a_halt(g), e), st.integers(0, 4), EPOCHS),
    st.builds(lambda w, e: ReleaseHeard(0.0, a_release(w), e), st.sampled_from([OTHER, OTHER, OTHER, OWN]), EPOCHS),
    st.builds(NoticeCame, AT, st.sampled_from([0.5, 15.0]), st.just("signal")),
    st.builds(StopAsked, AT, st.just("asked")),
    st.builds(BusLost, AT),
    st.builds(BusBack, AT),
)

BIRTHS = st.integers(0, 5).map(Rank)
STATUSES = st.builds(
    TrainerStatus,
    local_rank=st.just(0),
    rank=RANKS,
    generation=st.integers(0, 8).map(Generation),
    parked=st.integers(0, 8).map(Generation),
    done=st.integers(0, 9),
    active=st.booleans(),
    broken=st.integers(0, 8).map(Generation),
    waiting=st.none() | st.integers(0, 9),
    overdue=st.booleans(),
    paused=st.sampled_from(["", "evaluating"]),
)
LIVE_WORLDS = st.one_of(
    st.builds(lambda g, w: a_plan(g, *w), st.integers(1, 8), WORLDS),
    st.builds(lambda g, w: a_repair(g, *w), st.integers(1, 8), WORLDS),
)
LIVE_EVENTS: st.SearchStrategy[WorkerEvent] = st.one_of(
    st.builds(TrainerAttached, AT, GENERATIONS, BIRTHS),
    st.builds(TrainerSaid, AT, GENERATIONS, BIRTHS, STATUSES),
    st.builds(TrainerDetached, AT, GENERATIONS, BIRTHS),
    st.builds(TrainersSeen, AT, st.frozensets(st.tuples(GENERATIONS, BIRTHS))),
    st.builds(lambda n, e: LocateHeard(0.0, Locate(JOB, Generation(1), n), e), st.integers(1, 3), EPOCHS),
    st.builds(
        lambda g, r, e: EndStalledHeard(0.0, EndStalled(JOB, g, (r,), "it hangs"), e), GENERATIONS, RANKS, EPOCHS
    ),
    st.builds(lambda w, e: AssignmentHeard(0.0, w, e), LIVE_WORLDS, EPOCHS),
    st.builds(lambda g, e: HaltHeard(0.0, a_halt(g), e), st.integers(1, 8), EPOCHS),
    st.builds(lambda g, e: InviteHeard(0.0, an_invite(g), e), st.integers(1, 4), EPOCHS),
)


def _at(event: WorkerEvent, at_s: float) -> WorkerEvent:
    changed: WorkerEvent = type(event)(**{**{name: getattr(event, name) for name in event.__slots__}, "at_s": at_s})
    return changed


def _check(before: WorkerState, decision: Decision[WorkerState, WorkerEffect], now_s: float) -> None:
    state = decision.state
    assert invariants.check(before, state) == []
    assert decision.why
    last_seq = before.contact.seq
    attached = {trainer.birth for trainer in state.trainers if trainer.attached is not None}
    for effect in decision.effects:
        match effect:
            case ForkTrainers(assignment, invited):
                assert not before.trainers or state.generation > before.generation or invited
                assert invited or assignment.generation == state.generation
                assert not invited or state.standing is not Standing.MEMBER
            case StopTrainers():
                assert effect.generation <= max(state.generation, *(t.generation for t in before.trainers), 0)
            case TellFact() | SendHeartbeat():
                assert effect.status.seq > last_seq
                last_seq = effect.status.seq
            case TellTrainer(generation, rank) | AbortTrainer(generation, rank):
                assert (generation, rank) in attached
            case Leave():
                assert not state.trainers
    assert state.left or (decision.wake_at_s is not None and decision.wake_at_s > now_s)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(EVENTS, st.floats(0.0, 3.0)), max_size=60))
def test_no_order_of_events_breaks_an_invariant(happened: list[tuple[WorkerEvent, float]]) -> None:
    state = new_worker(an_identity(), 0.0)
    now_s = 0.0
    for event, passed_s in happened:
        now_s += passed_s
        decision = decide(state, _at(event, now_s))
        _check(state, decision, now_s)
        state = decision.state


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.one_of(EVENTS, LIVE_EVENTS, LIVE_EVENTS), st.floats(0.0, 3.0)), max_size=60))
def test_no_order_of_events_around_live_trainers_breaks_an_invariant(happened: list[tuple[WorkerEvent, float]]) -> None:
    state = new_worker(an_identity(), 0.0)
    now_s = 0.0
    for event, passed_s in happened:
        now_s += passed_s
        decision = decide(state, _at(event, now_s))
        _check(state, decision, now_s)
        state = decision.state


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(EVENTS, LIVE_EVENTS), max_size=40))
def test_deciding_twice_is_deciding_the_same(happened: list[WorkerEvent]) -> None:
    state = new_worker(an_identity(), 0.0)
    for event in happened:
        first = decide(state, event)
        assert decide(state, event) == first
        state = first.state
