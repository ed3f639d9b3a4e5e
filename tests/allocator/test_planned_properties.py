"""Any events in any order, with prices and plans: no cap is exceeded, and a paused job keeps no nodes."""

from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.allocator import events
from controlplane.allocator.caps import money_per_hour
from controlplane.allocator.demand import Demand
from controlplane.allocator.events import AllocatorEvent
from controlplane.allocator.quota_room import may_come
from controlplane.allocator.state import new_allocator
from controlplane.catalog.money import MicroDollars
from controlplane.clouds.outcomes import Outcome
from controlplane.planning.criteria import Criteria
from controlplane.planning.plan import plan
from controlplane.planning.tuning import Tuning
from controlplane.throughput.use import NodeUse
from messages.criteria import Objective
from tests.allocator.stage import EU, JOB, US, next_want
from tests.allocator.test_properties import AFTER_S, EVENTS, NAMES, OFFERS, Run, clusters_with
from tests.planning.builders import USD, a_market, a_small_profile, an_option, gpus_of

FEW = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PROFILES = tuple(a_small_profile(gradient_bytes=size) for size in (10**6, 10**8))


@dataclass(frozen=True, slots=True)
class PlanMade:
    """Make the newest requested plan."""


CRITERIA = st.builds(
    lambda least, more, cap, use: Criteria(
        min_workers=least,
        max_workers=least + more,
        objective=Objective.THROUGHPUT,
        max_micro_usd_per_hour=None if cap is None else MicroDollars(round(cap * USD)),
        min_utilisation=use,
    ),
    st.integers(1, 2),
    st.integers(0, 4),
    st.sampled_from([None, 0.6, 1.5, 3.0]),
    st.sampled_from([None, 0.5]),
)
OPTIONS = st.builds(
    lambda zone, usd, limit: an_option(zone, "T4", usd, limit=limit),
    st.sampled_from([offer.zone for offer in OFFERS]),
    st.sampled_from([0.2, 0.5, 1.0]),
    st.integers(1, 4),
)
MARKETS = st.builds(
    lambda options, quota: a_market(*options, quotas={} if quota is None else {gpus_of("us-a", "T4"): quota}),
    st.lists(OPTIONS, min_size=1, max_size=4),
    st.sampled_from([None, None, 0, 1, 3]),
)
USES = st.builds(
    NodeUse, st.sampled_from([US, EU]), NAMES, st.sampled_from([0.1, 0.3, 0.9]), st.sampled_from([0.0, 50.0])
)
PLANNED_EVENTS: st.SearchStrategy[AllocatorEvent | Outcome | PlanMade] = st.one_of(
    EVENTS,
    EVENTS,
    st.builds(events.MarketSeen, st.just(0.0), MARKETS),
    st.builds(events.NodesWanted, st.just(0.0), st.integers(1, 30), st.integers(1, 6), criteria=CRITERIA),
    st.builds(events.UseSeen, st.just(0.0), st.lists(USES, max_size=4).map(tuple)),
    st.builds(events.ProfileMeasured, st.just(0.0), st.sampled_from(PROFILES)),
    st.just(PlanMade()),
    st.just(PlanMade()),
)
Happened = list[tuple[float, AllocatorEvent | Outcome | PlanMade]]


class PlannedRun(Run):
    def __init__(self, wanted: int, criteria: Criteria) -> None:
        super().__init__(wanted)
        self.open.clear()
        self.allocator = new_allocator(JOB, OFFERS, wanted=wanted, at_s=0.0, demand=Demand(criteria, PROFILES[0]))
        super().happens(events.Ticked(0.0))
        super().happens(events.PoolsListed(0.0, -1, clusters_with([], True)))
        everywhere = (an_option(offer.zone, "T4", 0.5, limit=offer.max_nodes) for offer in OFFERS)
        super().happens(events.MarketSeen(0.0, a_market(*everywhere)))

    def hears(self, event: AllocatorEvent | Outcome | PlanMade) -> None:
        if not isinstance(event, PlanMade):
            self.happens(event)
        elif self.allocator.plans.asked is not None:
            asked, number = self.allocator.plans.asked, self.allocator.plans.number
            made = plan(asked.criteria, asked.profile, asked.market, asked.current, Tuning(alternatives=0))
            self.happens(events.Planned(self.now_s, number, made))


@FEW
@given(st.integers(0, 6), CRITERIA, st.lists(st.tuples(AFTER_S, PLANNED_EVENTS), max_size=30))
def test_caps_are_kept_whenever_something_is_raised(wanted: int, criteria: Criteria, happened: Happened) -> None:
    run = PlannedRun(wanted, criteria)
    for after_s, event in happened:
        run.now_s += after_s
        known = run.allocator.operations
        run.hears(event)
        allocator = run.allocator
        begun = [pool.operation for pool in allocator.pools.values() if pool.operation is not None]
        if any(operation.number > known and operation.raises for operation in begun):
            assert allocator.demand is not None
            assert allocator.market is not None
            cap = allocator.demand.criteria.max_micro_usd_per_hour
            coming = may_come(allocator)
            assert sum(coming.values()) <= min(allocator.wanted, allocator.demand.criteria.max_workers)
            assert cap is None or money_per_hour(allocator.demand, allocator.market, coming) <= cap


@FEW
@given(CRITERIA, st.lists(st.tuples(AFTER_S, PLANNED_EVENTS), max_size=25))
def test_a_paused_job_asks_for_no_node_and_wants_all_in_use_to_be_left(criteria: Criteria, happened: Happened) -> None:
    run = PlannedRun(6, criteria)
    for after_s, event in happened:
        run.now_s += after_s
        run.hears(event)
    run.happens(next_want(run.allocator, run.now_s, nodes=0))
    known = run.allocator.operations
    for _ in range(3):
        run.now_s += 1.0
        run.happens(events.Ticked(run.now_s))
    for pool in run.allocator.pools.values():
        assert pool.operation is None or not (pool.operation.number > known and pool.operation.raises)
        released = run.allocator.released.get(pool.ref.cluster, frozenset())
        in_use = {node.name for node in pool.nodes.values() if node.counts and node.was_ready} - released
        if run.allocator.synced and not pool.stopping:
            assert in_use <= run.allocator.leaving.get(pool.ref.cluster, frozenset())


@FEW
@given(CRITERIA, st.lists(st.tuples(AFTER_S, PLANNED_EVENTS), max_size=25))
def test_one_plan_is_made_at_a_time(criteria: Criteria, happened: Happened) -> None:
    run = PlannedRun(6, criteria)
    for after_s, event in happened:
        run.now_s += after_s
        before = run.allocator.plans
        run.hears(event)
        after = run.allocator.plans
        timed_out = before.asked_s is not None and run.now_s >= before.asked_s + run.allocator.settings.plan_timeout_s
        if before.asked is not None and after.number > before.number:
            assert timed_out or isinstance(event, PlanMade)


def test_something_is_raised_in_such_runs() -> None:
    """Shows that the property above is not empty."""
    run = PlannedRun(4, Criteria(min_workers=1, max_workers=4, objective=Objective.THROUGHPUT))
    run.hears(PlanMade())
    assert run.open
