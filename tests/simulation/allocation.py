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
    FollowMarket,
    ListPools,
    MakePlan,
    Place,
    RemoveNodes,
    ResizePool,
    ShareStock,
)
from controlplane.allocator.invariants import check
from controlplane.allocator.placement import free_nodes
from controlplane.allocator.state import new_allocator
from controlplane.capacity.translation import criteria_wanted, nodes_wanted, placement_changed
from controlplane.clouds.outcomes import Unreachable
from controlplane.job.state import Job, Want
from controlplane.planning.criteria import criteria_of
from controlplane.planning.plan import plan
from controlplane.planning.tuning import Tuning
from messages.clusters import ClusterHeartbeat
from messages.ids import ClusterName
from tests.allocator.simulation import SETTINGS as QUICK_SETTINGS
from tests.allocator.wire import Request
from tests.simulation.clockwork import Broken
from tests.simulation.market import Market

if TYPE_CHECKING:
    from tests.simulation.masters import Term

SETTINGS = replace(
    QUICK_SETTINGS,
    plan_every_s=10.0,
    plan_timeout_s=6.0,
    idle_timeout_s=20.0,
    rest_max_s=40.0,
    wary_s=20.0,
    release_s=30.0,
)
TUNING = Tuning(alternatives=0)
MARKET_S = 2.0
"""Seconds between two reads of prices and quotas."""


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
        term = self._term
        heard = partial(term.process.do_in_main_loop, lambda: deliver() if term.alive else None)
        clockwork.after(self._last_s - clockwork.now_s, heard)


class Allocation:
    def __init__(self, term: "Term", job: Job, want: Want, market: Market) -> None:
        self._term = term
        self._market = market
        self._to_job = Link(term)
        self._to_allocator = Link(term)
        self._newest: dict[ClusterName, tuple[str, int]] = {}
        self._wake = 0
        self.alive = True
        self.seen: set[str] = set()
        """Uids of machines that were reported to it."""
        self.sighted_s: dict[ClusterName, float] = {}
        self._file = criteria_of(job.spec) if job.spec.capacity is not None else None
        criteria = criteria_wanted(want, self._file) if self._file is not None else None
        self.allocator = new_allocator(
            job.name,
            market.offers,
            wanted=want.nodes,
            at_s=term.now_s,
            want=want.number,
            ended=want.ended,
            settings=SETTINGS,
            demand=Demand(criteria, market.profile) if criteria is not None else None,
        )
        self._later(0.0, self._tick)
        self._later(0.0, self._see_market)

    def end(self) -> None:
        """Ends the term. A live master cancels its calls; requests of a dead one may still arrive."""
        self.alive = False
        if self._term.process.alive:
            self._market.wire.cancel(self)
        else:
            self._market.wire.crash(self)

    def _later(self, delay_s: float, what: Callable[[], None]) -> None:
        self._term.later(delay_s, lambda: what() if self.alive else None)

    # From the job

    def want(self, want: Want) -> None:
        event = nodes_wanted(want, self._file, 0.0)
        self._to_allocator.send(lambda: self._post(event))

    # From the clusters

    def see(self, topology: ClusterHeartbeat) -> None:
        """Learns a report; one sender's messages come in order, as on the real bus."""
        if (topology.incarnation, topology.seq) <= self._newest.get(topology.cluster, ("", 0)):
            return
        self._newest[topology.cluster] = (topology.incarnation, topology.seq)
        self.seen |= {node.uid for node in topology.nodes}
        self.sighted_s[topology.cluster] = self._term.now_s
        free = free_nodes(topology, self.allocator.job)
        self.post(events.NodesSeen(0.0, topology.cluster, topology.nodes, free))

    # The core and its shell

    def post(self, event: events.AllocatorEvent) -> None:
        self._term.process.do_in_main_loop(lambda: self._post(event))

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
        self._wake_at(decision.wake_at_s)

    def _wake_at(self, at_s: float | None) -> None:
        self._wake += 1
        mine = self._wake
        if at_s is not None:
            delay_s = max(1e-5, at_s - self._term.now_s)
            self._later(delay_s, lambda: self._tick() if mine == self._wake else None)

    def _perform(self, effect: AllocatorEffect) -> None:
        clockwork = self._term.system.clockwork
        match effect:
            case CreatePool() | ResizePool() | RemoveNodes() | DeletePool():
                self._change(effect)
            case ListPools(listing, _):
                self._market.wire.list_pools(self, listing)
            case MakePlan(number, criteria, profile, market, current):
                made = plan(criteria, profile, market, current, TUNING)
                late = clockwork.happens(0.1, "plan late")
                delay_s = clockwork.chance.uniform(0.5, 4.0) if late else 0.05
                self._later(delay_s, lambda: self._post(events.Planned(0.0, number, made)))
            case Place():
                self._place(effect)
            case FollowMarket() | ShareStock():
                pass
            case Announce(kind, text, why, _):
                self._term.tell(f"[{kind}] {text} ({why})")
            case _:
                assert_never(effect)

    def _change(self, change: CreatePool | ResizePool | RemoveNodes | DeletePool) -> None:
        if not self._term.process.leads:
            ended = events.OperationEnded(0.0, change.ref, change.operation, Unreachable("this master does not lead"))
            self._later(0.001, lambda: self._post(ended))
            return
        operation = self.allocator.pools[change.ref].operation
        request = Request(change, operation is not None and operation.raises)
        self._term.system.check_alone(self._term.process)
        self._market.account.check(self, request)
        self._market.wire.send(self, request)

    def _place(self, place: Place) -> None:
        """Sends a placement to the job, which gets it a moment later."""
        term = self._term

        def hear() -> None:
            if self.alive:
                term.post(placement_changed(place, term.now_s))

        self._to_job.send(hear)

    def _see_market(self) -> None:
        """Learns the current prices and quotas."""
        self._later(MARKET_S, self._see_market)
        if self.allocator.demand is None:
            self._post(events.QuotasSeen(0.0, self._market.quotas()))
        else:
            self._post(events.MarketSeen(0.0, self._market.priced(self.allocator.demand.criteria)))
