"""An allocator for each job of the master, fed with topologies and told what the job wants."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from controlplane.allocator.decide import decide
from controlplane.allocator.demand import Demand
from controlplane.allocator.effects import AllocatorEffect
from controlplane.allocator.events import (
    AllocatorEvent,
    ClusterBecameReady,
    ClusterLost,
    ControllerFailed,
    CriteriaChanged,
    JobEnded,
    MachinesGivenBack,
    MarketSeen,
    NodesReleased,
    NodesSeen,
    ProfileMeasured,
    QuotasSeen,
    Ticked,
    UseSeen,
    WantedChanged,
)
from controlplane.allocator.giving import given_back
from controlplane.allocator.offers import Offer
from controlplane.allocator.sentences import shortage
from controlplane.allocator.state import Allocator, AllocatorSettings, new_allocator
from controlplane.capacity.placement import Placed, free_nodes, placed_of
from controlplane.capacity.planner import Planner
from controlplane.capacity.planning import Planning
from controlplane.capacity.shell import AllocatorShell, Complete
from controlplane.capacity.starts import PullHint, Starts
from controlplane.catalog.accelerators import BY_NAME
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import Cloud
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Quotas
from controlplane.throughput.profile import Profile
from controlplane.throughput.use import NodeUse
from messages.clusters import ClusterHeartbeat
from messages.events import Event
from messages.ids import ClusterName, JobName
from runtime.clock import Clock
from runtime.decision import Decision
from runtime.logs import WhyLog, logger
from runtime.role import RoleLoop

AllocatorLoop = RoleLoop[Allocator, AllocatorEvent, AllocatorEffect]
OnPlacement = Callable[[JobName, Placed], None]


@dataclass(slots=True)
class _Held:
    """A job that has machines, or may have."""

    loop: AllocatorLoop
    task: asyncio.Task[None]
    starts: Starts
    wanted: int | None
    """None when it has ended."""
    criteria: Criteria | None = None
    """Of a planned job."""
    placed: Placed | None = None
    free: dict[ClusterName, tuple[str, ...]] = field(default_factory=dict)
    """Nodes on which it has nothing."""


class Capacity:
    def __init__(
        self,
        cloud: Cloud,
        offers: tuple[Offer, ...],
        complete: Complete,
        clock: Clock,
        announce: Callable[[Event], None],
        on_placement: OnPlacement,
        settings: AllocatorSettings | None = None,
        planning: Planning | None = None,
        pull_hint: PullHint = lambda image: "",
    ) -> None:
        """Without `planning` all jobs take their nodes in the fleet's order."""
        self.pull_hint = pull_hint
        self._cloud = cloud
        self._offers = offers
        self._complete = complete
        self._clock = clock
        self._announce = announce
        self._on_placement = on_placement
        self._settings = settings or AllocatorSettings()
        self.planning = planning
        self._planner = planning.planner if planning is not None else Planner()
        if planning is not None:
            planning.listen_to(self.allocators)
        self._held: dict[JobName, _Held] = {}
        self._heard_s: dict[ClusterName, float] = {}
        self._unready: dict[ClusterName, str] = {}

    def hold(
        self,
        tasks: asyncio.TaskGroup,
        job: JobName,
        wanted: int,
        ended: str | None,
        *,
        demand: Demand | None = None,
        idle_timeout_s: float | None = None,
        measured_within_s: float = 0.0,
    ) -> None:
        """From now on there are machines for this job, or, if it has ended, soon none.

        The first plan of one that trains already waits until its steps were measured, at most so long: an assumption
        would be no reason to move it. What it loses meanwhile is replaced.
        """
        known = self._held.get(job)
        if known is not None and known.wanted is None and ended is None:
            # Another job of the name of one whose pools are still going: it takes over what there is.
            self._let_go(job)
        if job in self._held:
            self.wants(job, wanted, ended, demand.criteria if demand is not None else None)
            return
        if self.planning is None or not self.planning.is_possible:
            demand = None
        settings = self._settings if idle_timeout_s is None else replace(self._settings, idle_timeout_s=idle_timeout_s)
        now_s = self._clock.monotonic_s()
        state = new_allocator(
            job,
            self._offers,
            wanted=wanted,
            at_s=now_s,
            ended=ended,
            settings=settings,
            demand=demand,
            measured_by_s=now_s + measured_within_s,
        )
        loop = self._loop_of(job, state)
        task = tasks.create_task(loop.run(), name=f"capacity/{job}")
        starts = Starts(job, self.pull_hint)
        self._held[job] = _Held(loop, task, starts, None if ended is not None else wanted)
        if ended is None:
            self._follow(job, demand.criteria if demand is not None else None)

    def _loop_of(self, job: JobName, state: Allocator) -> AllocatorLoop:
        why_log = WhyLog(logger(job=job), "capacity_decided")
        before = state

        def decided(event: AllocatorEvent, decision: Decision[Allocator, AllocatorEffect]) -> None:
            nonlocal before
            held = self._held.get(job)
            if held is None or held.loop is not loop:
                return  # let go of, with events still in its queue
            stock, before = given_back(before, event), decision.state
            why_log(decision.why)
            self._place(job, held)
            if self.planning is not None:
                self.planning.see(job, decision.state)
            if stock is not None:
                self._tell_others(job, stock)
            if decision.state.finished:
                self._let_go(job)

        shell = AllocatorShell(job, self._cloud, self._complete, self._clock, self._announce, self._planner)
        loop = AllocatorLoop(f"capacity/{job}", state, decide, shell, Ticked, self._clock, decided)
        return loop

    def wants(self, job: JobName, wanted: int, ended: str | None, criteria: Criteria | None = None) -> None:
        """Told whenever the job decides; only what is new goes on."""
        new = None if ended is not None else wanted
        held = self._held.get(job)
        if held is None:
            return
        now_s = self._clock.monotonic_s()
        if criteria is not None and held.criteria is not None and held.criteria != criteria:
            held.loop.post(CriteriaChanged(now_s, criteria))
            self._follow(job, criteria)
        if held.wanted != new:
            held.wanted = new
            held.loop.post(WantedChanged(now_s, new) if new is not None else JobEnded(now_s, ended or ""))

    def allocators(self) -> dict[JobName, Allocator]:
        return {job: held.loop.state for job, held in self._held.items()}

    def see(self, topology: ClusterHeartbeat) -> None:
        now_s = self._clock.monotonic_s()
        self._heard_s[topology.cluster] = now_s
        event = NodesSeen(now_s, topology.cluster, topology.nodes)
        some_fail = any(sight.start_failure is not None for sight in topology.workers)
        for job, held in self._held.items():
            held.loop.post(event)
            free = free_nodes(topology, job)
            if free != held.free.get(topology.cluster, ()):
                held.free[topology.cluster] = free
                held.loop.post(NodesReleased(now_s, topology.cluster, free))
            self._see_starts(held, topology, now_s, some_fail)

    def _see_starts(self, held: _Held, topology: ClusterHeartbeat, now_s: float, some_fail: bool) -> None:
        """Of interest while some cannot start, and until the allocator knows that they can."""
        state, cluster = held.loop.state, topology.cluster
        was_failing = cluster in state.blocks or bool(state.failing.get(cluster))
        if was_failing or some_fail:
            seen = held.starts.see(topology, now_s)
            if was_failing or seen.failing:
                held.loop.post(seen)

    def heard_s(self, cluster: ClusterName) -> float | None:
        """When its controller was last heard."""
        return self._heard_s.get(cluster)

    def has_pools_in(self, cluster: ClusterName) -> bool:
        return any(ref.cluster == cluster for held in self._held.values() for ref in held.loop.state.pools)

    def forget_cluster(self, cluster: ClusterName) -> None:
        """It was silent for long, and nobody has anything there."""
        self._heard_s.pop(cluster, None)
        for held in self._held.values():
            held.free.pop(cluster, None)

    def hear_of_cluster(self, cluster: ClusterName, waits_for: str) -> None:
        """What stands in the way of its being ready; nothing any more when it is."""
        self._unready[cluster] = waits_for
        for job, held in self._held.items():
            if not waits_for:
                held.loop.post(ClusterBecameReady(self._clock.monotonic_s(), cluster))
            self._place(job, held)

    def block(self, cluster: ClusterName, detail: str, hint: str) -> None:
        """Its controller cannot start. Told again while it is so."""
        for held in self._held.values():
            held.loop.post(ControllerFailed(self._clock.monotonic_s(), cluster, detail, hint))

    def lose(self, job: JobName, cluster: ClusterName, why: str) -> None:
        """Told again and again while it is so: all nodes that the job had there are of no more use to it."""
        held = self._held.get(job)
        if held is not None:
            held.loop.post(ClusterLost(self._clock.monotonic_s(), cluster, why))

    def measure(self, job: JobName, profile: Profile) -> None:
        """What a planned job's steps need, as its trainers say."""
        self._post_planned(job, ProfileMeasured(self._clock.monotonic_s(), profile))

    def use(self, job: JobName, use: tuple[NodeUse, ...]) -> None:
        """Of the nodes of a planned job, as its trainers say."""
        self._post_planned(job, UseSeen(self._clock.monotonic_s(), use))

    def accelerator_of(self, job: JobName, cluster: ClusterName, node: str) -> str:
        """As the catalog calls it; empty where nobody knows."""
        pools = self._held[job].loop.state.pools.values() if job in self._held else ()
        there = (pool.offer.kind.accelerator for pool in pools if pool.ref.cluster == cluster and node in pool.nodes)
        found = next(there, "")
        return found if found in BY_NAME else ""

    def is_settled(self, job: JobName) -> bool:
        """The cloud holds nothing of it: it has ended, and all of its pools are gone."""
        return job not in self._held

    def _post_planned(self, job: JobName, event: AllocatorEvent) -> None:
        held = self._held.get(job)
        if held is not None and held.criteria is not None:
            held.loop.post(event)

    def _tell_others(self, giver: JobName, stock: MachineKind) -> None:
        event = MachinesGivenBack(self._clock.monotonic_s(), stock)
        for job, held in self._held.items():
            if job != giver:
                held.loop.post(event)

    def _let_go(self, job: JobName) -> None:
        """Topologies come for ever: they are for those that may hold something."""
        self._held.pop(job).task.cancel()
        if self.planning is not None:
            self.planning.forget(job)

    def _follow(self, job: JobName, criteria: Criteria | None) -> None:
        held = self._held[job]

        def tell(news: Market | Quotas) -> None:
            at_s = self._clock.monotonic_s()
            held.loop.post(MarketSeen(at_s, news) if isinstance(news, Market) else QuotasSeen(at_s, news))

        held.criteria = criteria
        if self.planning is not None:
            self.planning.follow(job, criteria, tell)

    def _place(self, job: JobName, held: _Held) -> None:
        allocator = held.loop.state
        placed = placed_of(allocator, shortage(allocator, self._clock.monotonic_s(), self._unready))
        if placed != held.placed:
            held.placed = placed
            self._on_placement(job, placed)
