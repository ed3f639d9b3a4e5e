"""Whatever happens, in whatever order, the cluster-controller's core keeps its invariants and its promises."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agents.cluster import invariants
from agents.cluster.decide import decide
from agents.cluster.effects import EndPlace, SaveKnown, SendTopology, StartPlace
from agents.cluster.events import (
    AgentEnded,
    BusBack,
    BusLost,
    ClusterEvent,
    KeepAsked,
    KnownLost,
    KnownSaved,
    LeaderSeen,
    PlaceEnded,
    PlaceFailed,
    PlaceStarted,
    RemoveAsked,
    SaveFailed,
    StopAsked,
    Ticked,
    WorkerHeard,
    WorkerSaidLeft,
)
from agents.cluster.state import ClusterState, Known, new_cluster
from messages.clusters import ClusterHeartbeat, Presence, RemoveWorkers
from messages.ids import Epoch, JobName, WorkerId
from messages.workers import WorkerPhase
from tests.cluster.builders import JOB, LOCAL, OTHER_JOB, a_status, keep

JOBS = st.sampled_from([JOB, OTHER_JOB])
PHASES = st.sampled_from(list(WorkerPhase))
INCARNATIONS = st.sampled_from(["0000", "aaaa", "bbbb"])
UIDS = st.sampled_from(["wabc123x1", "wabc123x2", "wabc123x3", "byhand"])
WORKERS = st.builds(lambda uid, incarnation: WorkerId(f"{uid}-{incarnation}"), UIDS, INCARNATIONS)
AT = st.just(0.0)

ANY_EVENT: st.SearchStrategy[ClusterEvent] = st.one_of(
    st.builds(Ticked, AT),
    st.builds(
        lambda worker, seq, phase, job: WorkerHeard(0.0, a_status(worker, seq, phase, job=job)),
        WORKERS,
        st.integers(0, 5),
        PHASES,
        JOBS,
    ),
    st.builds(WorkerSaidLeft, AT, WORKERS, st.just("left")),
    st.builds(
        lambda count, job, epoch: KeepAsked(0.0, keep(count, job), Epoch(epoch)),
        st.integers(-1, 4),
        JOBS,
        st.integers(0, 2),
    ),
    st.builds(
        lambda job, workers: RemoveAsked(0.0, RemoveWorkers(job, tuple(workers), "put out"), Epoch(2)),
        JOBS,
        st.lists(WORKERS, max_size=3),
    ),
    st.builds(LeaderSeen, AT, st.integers(1, 4)),
    st.builds(PlaceStarted, AT, UIDS, st.just(7)),
    st.builds(PlaceFailed, AT, UIDS, st.just("no memory")),
    st.builds(AgentEnded, AT, UIDS, st.just("killed")),
    st.builds(PlaceEnded, AT, UIDS, st.just("killed")),
    st.builds(KnownSaved, AT),
    st.builds(KnownLost, AT),
    st.builds(SaveFailed, AT, st.just("no answer")),
    st.builds(BusLost, AT),
    st.builds(BusBack, AT),
    st.builds(StopAsked, AT, st.just("SIGTERM")),
)


def at(event: ClusterEvent, at_s: float) -> ClusterEvent:
    fields = {name: getattr(event, name) for name in event.__slots__}
    return type(event)(**{**fields, "at_s": at_s})


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(ANY_EVENT, st.floats(0.0, 5.0)), max_size=60))
def test_no_order_of_events_breaks_an_invariant_or_makes_the_loop_spin(
    story: list[tuple[ClusterEvent, float]],
) -> None:
    now_s = 100.0
    state = new_cluster(LOCAL, "abc123", "", now_s)
    for event, pause_s in story:
        now_s += pause_s
        decision = decide(state, at(event, now_s))
        assert invariants.check(state, decision.state) == []
        again = decide(decision.state, Ticked(now_s))
        assert again.effects == (), "nothing was learned, so nothing is to be done"
        assert decision.wake_at_s is None or decision.wake_at_s > now_s
        state = decision.state


class HonestWorld(RuleBasedStateMachine):
    """A shell that answers truthfully, sooner or later, through crashes of the controller."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.incarnations = 1
        self.connected_since_s: float | None = self.now_s
        self.stored: Known | None = None
        self.state: ClusterState = new_cluster(LOCAL, "inc1", "", self.now_s)
        self.running: dict[str, JobName] = {}
        self.ever_started: set[str] = set()
        self.seqs: dict[str, int] = {}
        self.to_start: dict[str, JobName] = {}
        self.to_end: set[str] = set()
        self.save: Known | None = None
        self.topology: ClusterHeartbeat | None = None
        self.wake_at_s: float | None = self.now_s
        self.happens(Ticked(self.now_s))

    def happens(self, event: ClusterEvent) -> None:
        decision = decide(self.state, event)
        assert invariants.check(self.state, decision.state) == []
        assert decision.wake_at_s is None or decision.wake_at_s > event.at_s
        assert not self.fell_silent(decision.state) or self.has_listened(event.at_s, self.state.rules.silent_after_s)
        self.state, self.wake_at_s = decision.state, decision.wake_at_s
        for effect in decision.effects:
            match effect:
                case StartPlace(uid, job):
                    assert uid not in self.ever_started, "a uid was used again"
                    assert self.stored is not None and uid in {place.uid for place in self.stored.places}
                    self.ever_started.add(uid)
                    self.to_start[uid] = job
                case EndPlace(uid):
                    self.to_end.add(uid)
                case SendTopology(heartbeat):
                    assert self.state.link.connected
                    assert (
                        self.topology is None
                        or heartbeat.incarnation != self.topology.incarnation
                        or (heartbeat.seq == self.topology.seq + 1)
                    )
                    self.topology = heartbeat
                case SaveKnown(known):
                    assert self.save is None, "one save at a time"
                    self.save = known

    def fell_silent(self, after: ClusterState) -> set[str]:
        before = {uid for uid, place in self.state.places.items() if place.silent}
        return {uid for uid, place in after.places.items() if place.silent} - before

    def has_listened(self, now_s: float, for_s: float) -> bool:
        return self.connected_since_s is not None and now_s >= self.connected_since_s + for_s

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.0, 3.0, 20.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.wake_at_s is not None and self.wake_at_s <= until_s:
            self.now_s = max(self.now_s, self.wake_at_s)
            self.happens(Ticked(self.now_s))
        self.now_s = until_s

    @initialize(count=st.integers(0, 3))
    def some_workers_run(self, count: int) -> None:
        self.a_count_is_asked_for(JOB, count)
        self.everybody_does_what_was_asked()

    @rule(job=JOBS, count=st.integers(0, 4))
    def a_count_is_asked_for(self, job: JobName, count: int) -> None:
        self.happens(KeepAsked(self.now_s, keep(count, job), Epoch(1)))

    @precondition(lambda self: self.save is not None)
    @rule(well=st.booleans())
    def the_save_is_answered(self, well: bool) -> None:
        known, self.save = self.save, None
        if well:
            self.stored = known
        self.happens(KnownSaved(self.now_s) if well else SaveFailed(self.now_s, "no answer"))

    @precondition(lambda self: self.to_start)
    @rule(data=st.data(), well=st.booleans())
    def a_place_starts_or_not(self, data: st.DataObject, well: bool) -> None:
        uid = data.draw(st.sampled_from(sorted(self.to_start)))
        job = self.to_start.pop(uid)
        if well:
            self.running[uid] = job
            self.happens(PlaceStarted(self.now_s, uid, 7))
        else:
            self.happens(PlaceFailed(self.now_s, uid, "no memory"))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), phase=PHASES)
    def a_worker_speaks(self, data: st.DataObject, phase: WorkerPhase) -> None:
        uid = data.draw(st.sampled_from(sorted(self.running)))
        seq = self.seqs[uid] = self.seqs.get(uid, 0) + 1
        if self.state.link.connected:
            self.happens(WorkerHeard(self.now_s, a_status(f"{uid}-aaaa", seq, phase, job=self.running[uid])))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def a_worker_is_removed(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.running)))
        remove = RemoveWorkers(self.running[uid], (WorkerId(f"{uid}-aaaa"),), "put out")
        self.happens(RemoveAsked(self.now_s, remove, Epoch(1)))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def a_process_ends(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[uid]
        self.happens(PlaceEnded(self.now_s, uid, "killed"))

    @precondition(lambda self: self.to_end)
    @rule()
    def what_was_to_end_has_ended(self) -> None:
        for uid in sorted(self.to_end):
            self.running.pop(uid, None)
            self.to_start.pop(uid, None)
            self.happens(PlaceEnded(self.now_s, uid, "ended"))
        self.to_end.clear()

    @rule()
    def everybody_does_what_was_asked(self) -> None:
        while self.save is not None or self.to_start:
            if self.save is not None:
                self.the_save_is_answered(well=True)
            for uid in sorted(self.to_start):
                self.running[uid] = self.to_start.pop(uid)
                self.happens(PlaceStarted(self.now_s, uid, 7))
        if self.to_end:
            self.what_was_to_end_has_ended()
        for uid, job in sorted(self.running.items()):
            seq = self.seqs[uid] = self.seqs.get(uid, 0) + 1
            if self.state.link.connected:
                self.happens(WorkerHeard(self.now_s, a_status(f"{uid}-aaaa", seq, job=job)))

    @rule()
    def the_bus_goes_away_or_comes_back(self) -> None:
        self.happens(BusLost(self.now_s) if self.state.link.connected else BusBack(self.now_s))
        self.connected_since_s = self.now_s if self.state.link.connected else None

    @rule(save_was_written=st.booleans(), starts_happened=st.booleans())
    def the_controller_crashes_and_starts_again(self, save_was_written: bool, starts_happened: bool) -> None:
        if save_was_written and self.save is not None:
            self.stored = self.save
        self.save = None
        if starts_happened:
            self.running.update(self.to_start)
        self.to_start.clear()
        self.to_end.clear()
        self.incarnations += 1
        self.connected_since_s = self.now_s
        self.state = new_cluster(LOCAL, f"inc{self.incarnations}", "", self.now_s, self.stored)
        for place in self.stored.places if self.stored is not None else ():
            alive = place.uid in self.running
            found = PlaceStarted(self.now_s, place.uid, 7) if alive else PlaceEnded(self.now_s, place.uid, "not found")
            self.happens(found)
        self.happens(Ticked(self.now_s))

    @invariant()
    def every_process_is_known_to_the_controller(self) -> None:
        assert set(self.running) <= set(self.state.places)

    @invariant()
    def no_more_run_than_are_known_and_none_that_ended_is_listed(self) -> None:
        if self.topology is None or self.topology.seq != self.state.sending.seq or self.state.sending.unsent:
            return
        listed = {
            observation.worker for observation in self.topology.workers if observation.presence is not Presence.GONE
        }
        gone = {observation.worker for observation in self.topology.workers if observation.presence is Presence.GONE}
        assert not listed & gone

    def teardown(self) -> None:
        """Checks, after faults stop, that as many workers run as requested and all is saved."""
        if not self.state.link.connected:
            self.the_bus_goes_away_or_comes_back()
        for _ in range(200):
            if self.is_settled():
                return
            self.everybody_does_what_was_asked()
            self.time_passes(0.5)
        raise AssertionError(f"not settled: {self.state.wanted} are wanted, {self.running} run, {self.state.places}")

    def is_settled(self) -> bool:
        saved = {place.uid for place in self.state.saving.saved.places} if self.state.saving.saved is not None else None
        return saved == set(self.running) and all(map(self.has_enough, (JOB, OTHER_JOB)))

    def has_enough(self, job: JobName) -> bool:
        wanted = self.state.wanted.get(job)
        running = sum(its_job == job for its_job in self.running.values())
        return wanted is None or (running >= wanted.count if wanted.count else running == 0)


HonestWorld.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestHonestWorld = HonestWorld.TestCase
