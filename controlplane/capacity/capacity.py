"""The allocators of the master's jobs. Each gets the job's wishes and the state of clusters and market."""

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
        """Without `planning` all jobs get nodes in the order of the fleet's offers."""
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
        self._allocators: dict[JobName, JobAllocator] = {}
        """The allocators of jobs that have machines or may get some."""
        self._unready: dict[ClusterName, str] = {}
        """The reason why each cluster is not ready, for allocators that start later."""

    def start_allocator(
        self,
        tasks: asyncio.TaskGroup,
        job: JobName,
        want: Want,
        *,
        demand: Demand | None = None,
        idle_timeout_s: float | None = None,
        measured_within_s: float = 0.0,
    ) -> None:
        """Start the allocator of a job. If the job has ended, its allocator removes the machines.

        A new job takes over the pools of an earlier job with the same name. The first plan of a job that already trains
        waits until its steps are measured, at most `measured_within_s`, so that no assumption moves the job. Lost
        nodes are replaced meanwhile.
        """
        self.stop_allocator(job)
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
        allocator = JobAllocator(state, shell, self.pull_hint, file, self._on_decision, self._clock)
        self._allocators[job] = allocator
        allocator.start(tasks)
        if want.ended is None:
            self._follow(job, demand.criteria if demand is not None else None)

    def _on_decision(self, allocator: Allocator) -> None:
        if self.planning is not None:
            self.planning.see(allocator.job, allocator)
        if allocator.finished:
            self.stop_allocator(allocator.job)

    def want(self, job: JobName, want: Want) -> None:
        """Pass on the newest request of the job's core."""
        allocator = self._allocators.get(job)
        if allocator is not None:
            allocator.want(want)

    def allocators(self) -> dict[JobName, Allocator]:
        return {job: allocator.state for job, allocator in self._allocators.items()}

    def hear_heartbeat(self, heartbeat: ClusterHeartbeat) -> None:
        for allocator in self._allocators.values():
            allocator.hear_heartbeat(heartbeat)

    def has_pools_in(self, cluster: ClusterName) -> bool:
        return any(ref.cluster == cluster for allocator in self._allocators.values() for ref in allocator.state.pools)

    def hear_of_cluster(self, cluster: ClusterName, waits_for: str) -> None:
        """Report why a cluster is not ready to all allocators; empty if it is ready."""
        self._unready[cluster] = waits_for
        for allocator in self._allocators.values():
            allocator.post(ReadinessSeen(self._clock.monotonic_s(), cluster, waits_for))

    def block(self, cluster: ClusterName, detail: str, hint: str) -> None:
        """Report that a cluster's controller cannot start. The caller repeats this while the failure lasts."""
        for allocator in self._allocators.values():
            allocator.post(ControllerFailed(self._clock.monotonic_s(), cluster, detail, hint))

    def measure(self, job: JobName, profile: Profile) -> None:
        """Pass on what a planned job's steps need, as its trainers report."""
        self._post(job, ProfileMeasured(self._clock.monotonic_s(), profile))

    def use(self, job: JobName, use: tuple[NodeUse, ...]) -> None:
        """Pass on how much the nodes of a planned job compute, as its trainers report."""
        self._post(job, UseSeen(self._clock.monotonic_s(), use))

    def accelerator_of(self, job: JobName, cluster: ClusterName, node: str) -> str:
        """The catalog's name of a node's accelerator; empty if unknown."""
        allocator = self._allocators.get(job)
        return allocator.accelerator_of(cluster, node) if allocator is not None else ""

    def is_settled(self, job: JobName) -> bool:
        """True if the cloud has nothing of the job: it has ended, and all its pools are deleted."""
        return job not in self._allocators

    def _post(self, job: JobName, event: AllocatorEvent) -> None:
        allocator = self._allocators.get(job)
        if allocator is not None:
            allocator.post(event)

    def _share(self, giver: JobName, stock: MachineKind) -> None:
        event = MachinesGivenBack(self._clock.monotonic_s(), stock)
        for job, allocator in self._allocators.items():
            if job != giver:
                allocator.post(event)

    def stop_allocator(self, job: JobName) -> None:
        """Stop the job's allocator, so that it gets no more events. The job's machines stay."""
        allocator = self._allocators.pop(job, None)
        if allocator is None:
            return
        allocator.stop()
        if self.planning is not None:
            self.planning.forget(job)

    def _follow(self, job: JobName, criteria: Criteria | None) -> None:
        allocator = self._allocators.get(job)
        if allocator is not None and self.planning is not None:
            self.planning.follow(job, criteria, allocator.hear_market)
