"""Any events in any order: the allocator keeps its invariants, and all pools of an ended job are deleted."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.allocator import events
from controlplane.allocator.counting import total
from controlplane.allocator.decide import decide
from controlplane.allocator.effects import Change, CreatePool, DeletePool, ListPools, RemoveNodes, ResizePool
from controlplane.allocator.events import AllocatorEvent
from controlplane.allocator.invariants import check
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.state import Allocator, new_allocator
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import ClusterInfo, PoolInfo, PoolRef, PoolStatus, RecentShortage
from controlplane.clouds.outcomes import (
    AlreadyExists,
    Busy,
    Done,
    NotFound,
    Outcome,
    PartlyDone,
    QuotaExceeded,
    Refused,
    StockedOut,
    Throttled,
    Unexplained,
    Unreachable,
)
from messages.clusters import NodeObservation
from messages.labels import JOB_LABEL
from tests.allocator.stage import EU, JOB, US, an_offer, next_want

OFFERS = (an_offer("us-a", at_most=2), an_offer("us-b", at_most=4), an_offer("eu-c", at_most=1, cluster=EU))
REFS = tuple(pool_ref(JOB, offer) for offer in OFFERS)
FOUND = PoolRef(US, "found")
REASONS = (StockedOut, QuotaExceeded, Busy, AlreadyExists, NotFound, Throttled, Unreachable, Refused, Unexplained)

AFTER_S = st.sampled_from([0.0, 0.1, 1.0, 2.0, 12.0, 40.0, 700.0])
NAMES = st.sampled_from(["n1", "n2", "n3"])
UIDS = st.sampled_from(["", "u1", "u2", "u3"])
CLUSTERS = st.sampled_from([US, EU])
POOLS = st.sampled_from([*(ref.pool for ref in REFS), FOUND.pool])
OUTCOMES: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Done()),
    st.just(Done()),
    st.builds(PartlyDone, st.integers(0, 4), st.just(StockedOut("so it is"))),
    st.sampled_from([reason("so it is") for reason in REASONS]),
)
OBSERVATIONS = st.builds(
    NodeObservation,
    node=NAMES,
    uid=UIDS,
    pool=POOLS,
    ready=st.booleans(),
    notice_s=st.sampled_from([None, None, None, 0.0, 15.0]),
)
INFOS = st.builds(
    lambda ref, size, status, label, shortage: PoolInfo(
        ref, MachineKind("us-x", "n1", "", 0, True), size, status, {JOB_LABEL: label}, shortage=shortage
    ),
    st.sampled_from([*REFS, FOUND]),
    st.integers(0, 4),
    st.sampled_from(PoolStatus),
    st.sampled_from([JOB, JOB, JOB, "other"]),
    st.sampled_from([None, RecentShortage(StockedOut("none"), 1.0), RecentShortage(StockedOut("none"), 1000.0)]),
)


def clusters_with(infos: list[PoolInfo], ready: bool) -> tuple[ClusterInfo, ...]:
    return tuple(
        ClusterInfo(
            name, "", ready or name == US, {}, tuple({i.ref: i for i in infos if i.ref.cluster == name}.values())
        )
        for name in (US, EU)
    )


CLUSTER_INFOS = st.builds(clusters_with, st.lists(INFOS, max_size=3), st.booleans())
LISTING = st.integers(0, 6)

EVENTS: st.SearchStrategy[AllocatorEvent | Outcome] = st.one_of(
    st.builds(events.Ticked, st.just(0.0)),
    st.builds(
        events.NodesWanted,
        st.just(0.0),
        st.integers(1, 30),
        st.integers(0, 6),
        lost=st.frozensets(CLUSTERS, max_size=1),
    ),
    st.builds(lambda infos: events.PoolsListed(0.0, -1, infos), CLUSTER_INFOS),
    st.builds(events.PoolsListed, st.just(0.0), LISTING, CLUSTER_INFOS),
    st.builds(events.ListingFailed, st.just(0.0), LISTING, st.just(Unreachable("away"))),
    st.builds(
        events.NodesSeen,
        st.just(0.0),
        CLUSTERS,
        st.lists(OBSERVATIONS, max_size=4).map(tuple),
        st.none() | st.lists(NAMES, max_size=3).map(tuple),
    ),
    st.builds(
        events.StartsSeen,
        st.just(0.0),
        CLUSTERS,
        st.lists(st.tuples(NAMES, st.sampled_from([20.0, 400.0])), max_size=3).map(tuple),
        st.frozensets(NAMES, max_size=3),
    ),
    st.builds(events.ControllerFailed, st.just(0.0), CLUSTERS),
    OUTCOMES,
)


class Run:
    """Feeds events, and keeps its own account of operations in progress."""

    def __init__(self, wanted: int) -> None:
        self.now_s = 0.0
        self.allocator: Allocator = new_allocator(JOB, OFFERS, wanted=wanted, at_s=0.0)
        self.open: dict[PoolRef, Change] = {}
        self.happens(events.Ticked(0.0))

    def happens(self, event: AllocatorEvent | Outcome) -> None:
        made = self._made(event)
        if made is None:
            return
        before = self.allocator
        decision = decide(before, made)
        self.allocator = decision.state
        assert check(before, self.allocator, decision.effects) == []
        assert decision.why
        assert decision.wake_at_s is None or decision.wake_at_s > self.now_s
        for effect in decision.effects:
            if isinstance(effect, CreatePool | ResizePool | RemoveNodes | DeletePool):
                assert effect.ref not in self.open, "one operation at a time on a pool"
                assert effect.why
                self.open[effect.ref] = effect
                if isinstance(effect, CreatePool):
                    assert 0 < effect.plan.size <= _limit(effect.ref)

    def _made(self, event: AllocatorEvent | Outcome) -> AllocatorEvent | None:
        if isinstance(event, AllocatorEvent):
            if isinstance(event, events.PoolsListed) and event.listing < 0:
                event = replace(event, listing=self.allocator.listing.number)
            return replace(event, at_s=self.now_s)
        if not self.open:
            return None
        ref = sorted(self.open, key=str)[0]
        return events.OperationEnded(self.now_s, ref, self.open.pop(ref).operation, event)


def _limit(ref: PoolRef) -> int:
    offers: dict[PoolRef, Offer] = dict(zip(REFS, OFFERS, strict=True))
    return offers[ref].max_nodes


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 6), st.lists(st.tuples(AFTER_S, EVENTS), max_size=40))
def test_invariants_hold_whatever_happens(wanted: int, happened: list[tuple[float, AllocatorEvent | Outcome]]) -> None:
    run = Run(wanted)
    for after_s, event in happened:
        run.now_s += after_s
        run.happens(event)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.lists(st.tuples(AFTER_S, EVENTS), max_size=25))
def test_an_ended_job_keeps_no_pool_once_the_cloud_answers(
    wanted: int, happened: list[tuple[float, AllocatorEvent | Outcome]]
) -> None:
    run = Run(wanted)
    for after_s, event in happened:
        run.now_s += after_s
        run.happens(event)
    run.happens(next_want(run.allocator, run.now_s, ended="succeeded"))
    left = {pool.ref for pool in run.allocator.pools.values() if pool.exists} | set(run.open)
    for _ in range(60):
        run.now_s += 15.0
        for ref, change in list(run.open.items()):
            if isinstance(change, DeletePool):
                left.discard(ref)
            elif isinstance(change, CreatePool):
                left.add(ref)
            run.happens(Done())
        infos = [
            PoolInfo(ref, MachineKind("us-x", "n1", "", 0, True), 1, PoolStatus.RUNNING, {JOB_LABEL: JOB})
            for ref in left
        ]
        run.happens(events.Ticked(run.now_s))
        run.happens(events.PoolsListed(run.now_s, -1, clusters_with(infos, True)))
    assert run.allocator.finished
    assert left == set()
    assert decide(run.allocator, events.Ticked(run.now_s + 1)).effects == ()


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.lists(st.tuples(AFTER_S, EVENTS), max_size=25))
def test_nothing_is_raised_beyond_what_is_wanted_counting_what_is_under_way(
    wanted: int, happened: list[tuple[float, AllocatorEvent | Outcome]]
) -> None:
    run = Run(wanted)
    for after_s, event in happened:
        run.now_s += after_s
        known = set(run.open)
        run.happens(event)
        raised = [ref for ref in run.open.keys() - known if _raises(run.allocator, ref)]
        if raised:
            assert total(run.allocator.pools.values()) <= run.allocator.wanted


def _raises(allocator: Allocator, ref: PoolRef) -> bool:
    operation = allocator.pools[ref].operation
    return operation is not None and operation.raises


def test_a_listing_is_asked_for_once_at_a_time() -> None:
    run = Run(2)
    asked = [effect for effect in decide(run.allocator, events.Ticked(1.0)).effects if isinstance(effect, ListPools)]
    assert asked == []
