"""The allocator of the job in one term of a master: its core, the wire to the cloud, and the planner beside it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from controlplane.allocator import events
from controlplane.allocator.decide import decide
from controlplane.allocator.demand import Demand
from controlplane.allocator.effects import (
    AllocatorEffect,
    Announce,
    CreatePool,
    DeletePool,
    ListPools,
    MakePlan,
    RemoveNodes,
    ResizePool,
)
from controlplane.allocator.invariants import check
from controlplane.allocator.sentences import shortage
from controlplane.allocator.state import AllocatorSettings, new_allocator
from controlplane.budget.terms import criteria_within_budget
from controlplane.capacity.placement import Placed, free_nodes, placed_of
from controlplane.clouds.outcomes import Unreachable
from controlplane.job import events as job_events
from controlplane.job.present import deserted
from controlplane.job.state import Job
from controlplane.planning.criteria import Criteria
from controlplane.planning.plan import plan
from controlplane.planning.tuning import Tuning
from messages.clusters import ClusterHeartbeat
from messages.ids import ClusterName
from tests.allocator.wire import Request
from tests.simulation.clockwork import Broken
from tests.simulation.market import Market

if TYPE_CHECKING:
    from tests.simulation.masters import Term

SETTINGS = AllocatorSettings(
    stockout_s=3.0,
    stockout_max_s=15.0,
    quota_s=10.0,
    quota_max_s=20.0,
    loss_cooldown_s=10.0,
    retry_s=0.5,
    retry_max_s=4.0,
    unready_s=4.0,
    unready_timeout_s=12.0,
    linger_s=6.0,
    owed_s=3.0,
    arrival_s=25.0,
    recent_s=20.0,
    hang_s=5.0,
    fresh_s=4.0,
    relist_s=8.0,
    relist_updating_s=2.0,
    list_timeout_s=10.0,
    quiet_s=5.0,
    plan_settle_s=0.5,
    plan_every_s=10.0,
    plan_timeout_s=6.0,
    idle_timeout_s=20.0,
    rest_max_s=40.0,
    wary_s=20.0,
    release_s=30.0,
)
TUNING = Tuning(alternatives=0)
MARKET_S = 2.0
"""Seconds between two looks at prices and quotas."""


class Link:
    """A queue from one loop of a master to another: nothing is lost or overtaken, but it takes a while."""

    def __init__(self, term: "Term") -> None:
        self._term = term
        self._last_s = 0.0

    def send(self, deliver: Callable[[], None]) -> None:
        clockwork = self._term.system.clockwork
        slow = clockwork.happens(0.05, "loop of a master slow")
        delay_s = clockwork.chance.uniform(0.1, 1.0) if slow else clockwork.chance.uniform(0.00001, 0.001)
        self._last_s = max(self._last_s, clockwork.now_s + delay_s)
        self._term.later(self._last_s - clockwork.now_s, deliver)


class Allocation:
    def __init__(self, term: "Term", job: Job, market: Market) -> None:
        self._term = term
        self._market = market
        self._cloud = market.cloud
        self._to_job = Link(term)
        self._to_allocator = Link(term)
        self._wanted: tuple[int | None, Criteria | None] = _wanted(job)
        self._placed: Placed | None = None
        self._free: dict[ClusterName, tuple[str, ...]] = {}
        self._newest: dict[ClusterName, tuple[str, int]] = {}
        self._wake = 0
        self.seen: set[str] = set()
        """Uids of machines that it was told of."""
        wanted, criteria = self._wanted
        self.allocator = new_allocator(
            job.name,
            market.offers,
            wanted=wanted or 0,
            at_s=term.now_s,
            ended=job.record.why if wanted is None else None,
            settings=SETTINGS,
            demand=Demand(criteria, market.profile) if criteria is not None else None,
        )
        term.later(0.0, self._tick)
        term.later(0.0, self._see_market)

    @property
    def alive(self) -> bool:
        return self._term.alive

    def end(self) -> None:
        self._market.wire.crash(self)

    # From the job

    def decided(self, job: Job) -> None:
        """The job has decided: what is new of what it wants goes on."""
        new = _wanted(job)
        if new != self._wanted:
            self._wanted = new
            self._to_allocator.send(lambda: self._want(new, job.record.why))
        for cluster in deserted(job, self._term.now_s):
            lost = events.ClusterLost(0.0, cluster, f"nothing is heard of cluster {cluster}")
            self._to_allocator.send(partial(self.post, lost))

    def _want(self, new: tuple[int | None, Criteria | None], why: str) -> None:
        wanted, criteria = new
        if criteria is not None:
            self.post(events.CriteriaChanged(0.0, criteria))
        self.post(events.WantedChanged(0.0, wanted) if wanted is not None else events.JobEnded(0.0, why))

    # From the clusters

    def see(self, topology: ClusterHeartbeat) -> None:
        """On the real bus one sender's messages come in order."""
        incarnation, seq = self._newest.get(topology.cluster, ("", 0))
        if (topology.incarnation, topology.seq) <= (incarnation, seq):
            return
        self._newest[topology.cluster] = (topology.incarnation, topology.seq)
        self.seen |= {node.uid for node in topology.nodes}
        self.post(events.NodesSeen(0.0, topology.cluster, topology.nodes))
        free = free_nodes(topology, self.allocator.job)
        if free != self._free.get(topology.cluster, ()):
            self._free[topology.cluster] = free
            self.post(events.NodesReleased(0.0, topology.cluster, free))

    # The core and its shell

    def post(self, event: events.AllocatorEvent) -> None:
        self._term.process.do(lambda: self._post(event))

    def _tick(self) -> None:
        self._post(events.Ticked(0.0))

    def _post(self, event: Any) -> None:
        if not self.alive:
            return
        before, now_s = self.allocator, self._term.now_s
        decision = decide(before, replace(event, at_s=now_s))
        self.allocator = decision.state
        broken = check(before, self.allocator, decision.effects)
        if broken:
            raise Broken(f"the allocator of {self._term.name} after {event}: {'; '.join(broken)}")
        for effect in decision.effects:
            self._perform(effect)
        self._place()
        self._wake_at(decision.wake_at_s)

    def _wake_at(self, at_s: float | None) -> None:
        self._wake += 1
        mine = self._wake
        if at_s is not None:
            delay_s = max(1e-5, at_s - self._term.now_s)
            self._term.later(delay_s, lambda: self._tick() if mine == self._wake else None)

    def _perform(self, effect: AllocatorEffect) -> None:
        clockwork = self._term.system.clockwork
        match effect:
            case CreatePool() | ResizePool() | RemoveNodes() | DeletePool():
                self._change(effect)
            case ListPools(listing, _):
                self._market.wire.list_pools(self, listing)
            case MakePlan(number, criteria, profile, market, present):
                made = plan(criteria, profile, market, present, TUNING)
                late = clockwork.happens(0.1, "plan late")
                delay_s = clockwork.chance.uniform(0.5, 4.0) if late else 0.05
                self._term.later(delay_s, lambda: self._post(events.Planned(0.0, number, made)))
            case Announce(kind, text, why, _):
                self._term.tell(f"[{kind}] {text} ({why})")
            case _:
                assert_never(effect)

    def _change(self, change: CreatePool | ResizePool | RemoveNodes | DeletePool) -> None:
        if not self._term.process.leads:
            ended = events.OperationEnded(0.0, change.ref, change.operation, Unreachable("this master does not lead"))
            self._term.later(0.001, lambda: self._post(ended))
            return
        operation = self.allocator.pools[change.ref].operation
        request = Request(change, operation is not None and operation.raises)
        self._term.system.check_alone(self._term.process)
        self._market.account.check(self, request)
        self._market.wire.send(self, request)

    def _place(self) -> None:
        """Where the job's workers should be, told to the job when it changes."""
        placed = placed_of(self.allocator, shortage(self.allocator, self._term.now_s, {}))
        if placed == self._placed or not (self.allocator.synced or self.allocator.ended):
            return
        self._placed = placed
        self._to_job.send(
            lambda: self._term.post(
                job_events.PlacementChanged(
                    self._term.now_s, placed.workers, placed.shortage, placed.leaving, placed.at_once
                )
            )
        )

    def _see_market(self) -> None:
        """Prices and quotas as they are now."""
        self._term.later(MARKET_S, self._see_market)
        if self.allocator.demand is None:
            self._post(events.QuotasSeen(0.0, self._market.quotas()))
        else:
            self._post(events.MarketSeen(0.0, self._market.priced(self.allocator.demand.criteria)))


def _wanted(job: Job) -> tuple[int | None, Criteria | None]:
    """How many nodes, or None when the job has ended; and the criteria of a planned job."""
    wanted = job.record.wanted if job.record.paused is None else 0
    criteria = criteria_within_budget(job) if job.spec.capacity is not None else None
    return None if job.record.phase.ended else wanted, criteria
