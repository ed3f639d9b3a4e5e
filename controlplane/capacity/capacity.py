"""An allocator for each job of the master, fed with what its job wants and what clusters and the market show."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from controlplane.allocator.demand import Demand
from controlplane.allocator.events import (
    AllocatorEvent,
    ControllerFailed,
    MachinesGivenBack,
    ProfileMeasured,
    ReadinessSeen,
    UseSeen,
)
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import Allocator, new_allocator
from controlplane.capacity.interface import CapacityAdvisor, NoAdvisor, OnPlacement
from controlplane.capacity.job_allocator import JobAllocator
from controlplane.capacity.plan_inputs import PlanInputs
from controlplane.capacity.planner import Planner
from controlplane.capacity.shell import AllocatorShell, FleetTerms, Outlets
from controlplane.capacity.translation import criteria_wanted
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import Cloud
from controlplane.job.state import Want
from controlplane.planning.criteria import Criteria
from controlplane.throughput.profile import Profile
from controlplane.throughput.use import NodeUse
from messages.clusters import ClusterHeartbeat
from messages.events import Event
from messages.ids import ClusterName, JobName
from runtime.clock import Clock


class Capacity:
    has_fleet = True

    def __init__(
        self,
        cloud: Cloud,
        fleet: FleetTerms,
        clock: Clock,
        announce: Callable[[Event], None],
        on_placement: OnPlacement,
        settings: AllocatorSettings | None = None,
        planning: PlanInputs | None = None,
    ) -> None:
        """Without `planning` all jobs take their nodes in the fleet's order."""
        self.pull_hint = fleet.pull_hint
        self._cloud = cloud
        self._fleet = fleet
        self._clock = clock
        self._outlets = Outlets(announce, on_placement, self._follow, self._share)
        self.advisor: CapacityAdvisor = planning.advisor if planning is not None else NoAdvisor(clock)
        self._settings = settings or AllocatorSettings()
        self.planning = planning
        self._planner = planning.planner if planning is not None else Planner()
        if planning is not None:
            planning.listen_to(self.allocators)
        self._held: dict[JobName, JobAllocator] = {}
        """Of jobs that have machines, or may have."""
        self._unready: dict[ClusterName, str] = {}
        """What stands in the way of each cluster's being ready, for allocators that begin later."""

    def hold(
        self,
        tasks: asyncio.TaskGroup,
        job: JobName,
        want: Want,
        *,
        demand: Demand | None = None,
        idle_timeout_s: float | None = None,
        measured_within_s: float = 0.0,
    ) -> None:
        """From now on there are machines for this job, or, if it has ended, soon none.

        Another job of the name of one whose pools are still going takes over what there is. The first plan of one that
        trains already waits until its steps were measured, at most so long: an assumption would be no reason to move
        it. What it loses meanwhile is replaced.
        """
        self.let_go(job)
        if self.planning is None or not self.planning.is_possible:
            demand = None
        file = demand.criteria if demand is not None else None
        if demand is not None:
            demand = replace(demand, criteria=criteria_wanted(want, demand.criteria))
        settings = self._settings if idle_timeout_s is None else replace(self._settings, idle_timeout_s=idle_timeout_s)
        now_s = self._clock.monotonic_s()
        state = new_allocator(
            job,
            self._fleet.offers,
            wanted=want.nodes,
            at_s=now_s,
            want=want.number,
            ended=want.ended,
            settings=settings,
            demand=demand,
            measured_by_s=now_s + measured_within_s,
            unready=self._unready,
        )
        shell = AllocatorShell(job, self._cloud, self._fleet.complete, self._clock, self._outlets, self._planner)
        held = JobAllocator(state, shell, self.pull_hint, file, self._on_decision, self._clock)
        self._held[job] = held
        held.start(tasks)
        if want.ended is None:
            self._follow(job, demand.criteria if demand is not None else None)

    def _on_decision(self, allocator: Allocator) -> None:
        if self.planning is not None:
            self.planning.see(allocator.job, allocator)
        if allocator.finished:
            self.let_go(allocator.job)

    def want(self, job: JobName, want: Want) -> None:
        """What the job's core asked for last."""
        held = self._held.get(job)
        if held is not None:
            held.want(want)

    def allocators(self) -> dict[JobName, Allocator]:
        return {job: held.state for job, held in self._held.items()}

    def see(self, topology: ClusterHeartbeat) -> None:
        for held in self._held.values():
            held.see(topology)

    def has_pools_in(self, cluster: ClusterName) -> bool:
        return any(ref.cluster == cluster for held in self._held.values() for ref in held.state.pools)

    def hear_of_cluster(self, cluster: ClusterName, waits_for: str) -> None:
        """What stands in the way of its being ready; nothing any more when it is."""
        self._unready[cluster] = waits_for
        for held in self._held.values():
            held.post(ReadinessSeen(self._clock.monotonic_s(), cluster, waits_for))

    def block(self, cluster: ClusterName, detail: str, hint: str) -> None:
        """Its controller cannot start. Told again while it is so."""
        for held in self._held.values():
            held.post(ControllerFailed(self._clock.monotonic_s(), cluster, detail, hint))

    def measure(self, job: JobName, profile: Profile) -> None:
        """What a planned job's steps need, as its trainers say."""
        self._post(job, ProfileMeasured(self._clock.monotonic_s(), profile))

    def use(self, job: JobName, use: tuple[NodeUse, ...]) -> None:
        """Of the nodes of a planned job, as its trainers say."""
        self._post(job, UseSeen(self._clock.monotonic_s(), use))

    def accelerator_of(self, job: JobName, cluster: ClusterName, node: str) -> str:
        """Name in the catalog; empty if unknown."""
        held = self._held.get(job)
        return held.accelerator_of(cluster, node) if held is not None else ""

    def is_settled(self, job: JobName) -> bool:
        """The cloud holds nothing of it: it has ended, and all of its pools are gone."""
        return job not in self._held

    def _post(self, job: JobName, event: AllocatorEvent) -> None:
        held = self._held.get(job)
        if held is not None:
            held.post(event)

    def _share(self, giver: JobName, stock: MachineKind) -> None:
        event = MachinesGivenBack(self._clock.monotonic_s(), stock)
        for job, held in self._held.items():
            if job != giver:
                held.post(event)

    def let_go(self, job: JobName) -> None:
        """Its allocator ends. Topologies come for ever: they are for those that may hold something."""
        held = self._held.pop(job, None)
        if held is None:
            return
        held.stop()
        if self.planning is not None:
            self.planning.forget(job)

    def _follow(self, job: JobName, criteria: Criteria | None) -> None:
        held = self._held.get(job)
        if held is not None and self.planning is not None:
            self.planning.follow(job, criteria, held.hear_market)
