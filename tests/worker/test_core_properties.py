"""Whatever happens, in whatever order, the worker-agent's core keeps its invariants."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.worker import invariants
from agents.worker.decide import decide
from agents.worker.effects import ForkTrainers, Leave, SendHeartbeat, StopTrainers, TellFact
from agents.worker.events import (
    AssignmentHeard,
    BusBack,
    BusLost,
    HaltHeard,
    HostLost,
    HostWarmed,
    NoticeCame,
    ReleaseHeard,
    StepCompleted,
    StopAsked,
    Ticked,
    TrainerExited,
    TrainerForked,
    TrainerForkFailed,
    TrainersStopped,
    WorkerEvent,
)
from agents.worker.state import new_worker
from messages.ids import Epoch, Generation, Rank
from messages.workers import TrainerExit
from tests.worker.builders import OTHER, OWN, a_halt, a_member, a_release, an_assignment, an_identity

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
    st.builds(lambda g, w, e: AssignmentHeard(0.0, an_assignment(g, *w), e), st.integers(0, 4), WORLDS, EPOCHS),
    st.builds(lambda g, e: HaltHeard(0.0, a_halt(g), e), st.integers(0, 4), EPOCHS),
    st.builds(lambda w, e: ReleaseHeard(0.0, a_release(w), e), st.sampled_from([OTHER, OTHER, OTHER, OWN]), EPOCHS),
    st.builds(NoticeCame, AT, st.sampled_from([0.5, 15.0]), st.just("signal")),
    st.builds(StopAsked, AT, st.just("asked")),
    st.builds(BusLost, AT),
    st.builds(BusBack, AT),
)


def _at(event: WorkerEvent, at_s: float) -> WorkerEvent:
    changed: WorkerEvent = type(event)(**{**{name: getattr(event, name) for name in event.__slots__}, "at_s": at_s})
    return changed


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(EVENTS, st.floats(0.0, 3.0)), max_size=60))
def test_no_order_of_events_breaks_an_invariant(happened: list[tuple[WorkerEvent, float]]) -> None:
    state = new_worker(an_identity(), 0.0)
    now_s = 0.0
    last_seq = 0
    for event, passed_s in happened:
        now_s += passed_s
        before = state
        decision = decide(before, _at(event, now_s))
        state = decision.state
        assert invariants.check(before, state) == []
        assert decision.why
        for effect in decision.effects:
            match effect:
                case ForkTrainers():
                    assert not before.trainers or state.generation > before.generation
                    assert effect.assignment.generation == state.generation
                case StopTrainers():
                    assert effect.generation <= state.generation
                case TellFact() | SendHeartbeat():
                    assert effect.status.seq > last_seq
                    last_seq = effect.status.seq
                case Leave():
                    assert not state.trainers
        assert state.left or (decision.wake_at_s is not None and decision.wake_at_s > now_s)


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_deciding_twice_is_deciding_the_same(happened: list[WorkerEvent]) -> None:
    state = new_worker(an_identity(), 0.0)
    for event in happened:
        first = decide(state, event)
        assert decide(state, event) == first
        state = first.state
