"""The cloud: the simulator's pure model with a simulated shell.

The model is the one behind the demo and the end-to-end tests. Here it runs in virtual time: requests of the allocators
go in, its nodes go to the simulated Kubernetes clusters, and its operations end as the outcomes that a driver reports.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from controlplane.allocator.effects import Change, CreatePool, DeletePool, RemoveNodes, ResizePool
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds import outcomes
from controlplane.clouds.interface import (
    ClusterInfo,
    MachineInfo,
    PoolInfo,
    PoolPlan,
    PoolRef,
    PoolStatus,
    RecentShortage,
)
from controlplane.clouds.outcomes import Outcome
from messages.ids import ClusterName
from simulator.cloud.model import bill, invariants, quotas, requests, view
from simulator.cloud.model import events as model_events
from simulator.cloud.model.decide import decide
from simulator.cloud.model.effects import Answer, RegionRequest, TellRegion
from simulator.cloud.model.machines import Machine as MachineType
from simulator.cloud.model.machines import machine
from simulator.cloud.model.names import ClusterKey, NodeName, OperationName, PoolKey
from simulator.cloud.model.refusals import Code, Refusal
from simulator.cloud.model.state import Cloud as Model
from simulator.cloud.model.state import Failure, Operation, Pool, PoolSpec, Rules, Shortage
from simulator.cloud.model.view import NodePhase
from tests.simulation.clockwork import Broken, Clockwork

ACCELERATORS = {"T4": "nvidia-tesla-t4", "L4": "nvidia-l4"}
"""The cloud's names of accelerators, by the name in the catalog."""
PROJECT = "simulated"
SYSTEM_POOL = "system"
LOOK_S = 0.7
"""Seconds between two reads of the refusals of a pool that an operation grows."""
RULES = Rules(
    operation_s=0.5,
    cluster_s=0.0,
    boot_s=1.5,
    recreate_s=1.0,
    retry_s=1.5,
    stockout_s=6.0,
    group_s=0.1,
    sticky_error_s=20.0,
    give_up_s=12.0,
    forget_s=2.0,
    notice_s=5.0,
    repair_s=10.0,
    drain_s=6.0,
    upgrade_every_s=0.0,
)


@dataclass
class Machine:
    """An instance, as the accounts of a simulation see it."""

    name: str
    uid: str
    life: str


@dataclass
class CloudPool:
    ref: PoolRef
    plan: PoolPlan
    target: int
    surge: int = 0
    machines: dict[str, Machine] = field(default_factory=dict)


class Cloud:
    def __init__(self, clockwork: Clockwork, regions: Mapping[ClusterName, str]) -> None:
        self.clockwork = clockwork
        self.regions = regions
        self.limits: dict[PoolRef, int] = {}
        """Nodes that the fleet allows in each pool."""
        self.dark: set[ClusterName] = set()
        self.on_region: Callable[[ClusterName, RegionRequest, Callable[[bool], None]], None]
        """Performs a request to a region, then reports whether the node was drained."""
        self.state = Model(replace(RULES, seed=clockwork.seed, regions=tuple(regions.values())))
        self._plans: dict[PoolRef, PoolPlan] = {}
        self._waiting: dict[OperationName, Callable[[Operation], None]] = {}
        self._answers: dict[int, requests.Outcome] = {}
        self._asked = 0
        self._wake = 0

    def open(self) -> None:
        """Creates the clusters."""
        for cluster, region in self.regions.items():
            self.post(model_events.RegionSeen(self.now_s, region, "first", ()))
            spec = PoolSpec(_machine("e2-medium"), zones=(f"{region}-a",), size=0)
            self.ask(requests.CreateCluster(self._key(cluster), (requests.PoolWish(SYSTEM_POOL, spec),)))

    @property
    def now_s(self) -> float:
        return self.clockwork.now_s

    # What a driver reads

    def listing(self) -> tuple[ClusterInfo, ...]:
        return tuple(
            ClusterInfo(cluster, region, True, {}, tuple(map(self._info, self._pools_of(cluster))))
            for cluster, region in self.regions.items()
        )

    def machines(self) -> tuple[MachineInfo, ...]:
        """Machines that cost money now."""
        found = []
        for node in self.state.nodes.values():
            spec = self.state.pools[node.pool].spec
            if node.instance is not None:
                started_s, kind = node.instance.started_s, _kind(spec, node.zone)
                found.append(MachineInfo(node.instance.id, node.name, kind, started_s, spec.labels))
        return tuple(found)

    def bill_micro_usd(self) -> float:
        """Cost of all machines so far."""
        lines = (bill.settled(line, self.now_s) for line in self.state.lines.values())
        return sum(line.cost for line in lines) / bill.MS_PER_HOUR

    def micro_usd_per_hour(self) -> int:
        return sum(line.rate * line.nodes for line in self.state.lines.values())

    @property
    def pools(self) -> dict[PoolRef, CloudPool]:
        found = {}
        for cluster in self.regions:
            for pool in self._pools_of(cluster):
                ref = PoolRef(cluster, pool.key.pool)
                nodes = view.members(self.state, pool.key)
                machines = {
                    str(node.name): Machine(node.name, node.instance.id, view.phase(self.state, node))
                    for node in nodes
                    if node.instance is not None
                }
                surge = sum(node.is_surge for node in nodes)
                target = 0 if pool.deleting else pool.groups[0].target
                found[ref] = CloudPool(ref, self._plans[ref], target, surge, machines)
        return found

    def running(self) -> dict[str, tuple[CloudPool, Machine]]:
        """Healthy machines by uid."""
        return {
            each.uid: (pool, each)
            for pool in self.pools.values()
            for each in pool.machines.values()
            if each.life == NodePhase.RUNNING and self.state.nodes[NodeName(each.name)].unready_since_s is None
        }

    # What a driver asks for

    def receive(self, change: Change, answer: Callable[[Outcome], None]) -> None:
        """Starts a change; answers a refusal at once, otherwise when the operation has ended."""
        if self.clockwork.happens(0.04, "throttled"):
            answer(outcomes.Throttled("too many requests"))
            return
        granted = self.ask(self._request(change))
        self._check_limit(change.ref)
        match granted:
            case requests.Started(operation):
                self._wait(operation, change, answer)
            case requests.Done():
                answer(outcomes.Done())
            case Refusal():
                answer(self._lowered_beside(change, granted) or self._refusal(change, granted))
            case _:
                assert_never(granted)

    def _check_limit(self, ref: PoolRef) -> None:
        pool = self.pools.get(ref)
        if pool is not None and pool.target - pool.surge > self.limits[ref]:
            raise Broken(f"pool {ref.pool} aims at {pool.target} nodes, {self.limits[ref]} are allowed")

    def ask(self, request: requests.Request) -> requests.Outcome:
        self._asked += 1
        number = self._asked
        self.post(model_events.Asked(self.now_s, number, request))
        return self._answers.pop(number)

    def post(self, event: model_events.Event) -> None:
        decision = decide(self.state, event)
        self.state = decision.state
        broken = invariants.broken(self.state)
        if broken:
            raise Broken(f"the cloud after {event}: {'; '.join(broken)}")
        for effect in decision.effects:
            match effect:
                case Answer(number, outcome):
                    self._answers[number] = outcome
                case TellRegion():
                    self._tell_region(effect)
                case _:
                    assert_never(effect)
        for name in [each for each in self._waiting if self.state.operations[each].is_done]:
            self._waiting.pop(name)(self.state.operations[name])
        self._wake_at(decision.wake_at_s)

    def _wake_at(self, at_s: float | None) -> None:
        self._wake += 1
        mine = self._wake

        def tick() -> None:
            if mine == self._wake:
                self.post(model_events.Tick(self.now_s))

        if at_s is not None:
            self.clockwork.after(max(1e-5, at_s - self.now_s), tick)

    def _tell_region(self, reported: TellRegion) -> None:
        request = reported.request
        cluster = next(each for each, region in self.regions.items() if region == request.region)

        def obeyed(drained: bool) -> None:
            self.post(model_events.RegionObeyed(self.now_s, reported.number, request, "https://cluster", "", drained))

        def deliver() -> None:
            if self.clockwork.happens(0.03, "cluster did not obey its cloud"):
                self.post(model_events.RegionFailed(self.now_s, reported.number, request, "no answer"))
            else:
                self.on_region(cluster, request, obeyed)

        self.clockwork.after(self.clockwork.chance.uniform(0.002, 0.02), deliver)

    # Operations

    def _wait(self, name: OperationName, change: Change, answer: Callable[[Outcome], None]) -> None:
        is_over = False

        def once(outcome: Outcome) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                answer(outcome)

        self._waiting[name] = lambda operation: once(_ended(operation))
        if isinstance(change, CreatePool | ResizePool):
            self.clockwork.after(LOOK_S, lambda: None if is_over else self._watch(name, change, frozenset(), once))
            if self.clockwork.happens(0.03, "operation not waited for to its end"):
                self.clockwork.after(2.0, lambda: once(outcomes.Unfinished("no end in time")))

    def _watch(
        self, name: OperationName, change: Change, last: frozenset[NodeName], answer: Callable[[Outcome], None]
    ) -> None:
        """Abandons refused nodes by name when no more refusals come, as the driver does."""
        operation, pool = self.state.operations[name], self.state.pools.get(self._pool_key(change.ref))
        if operation.is_done or pool is None or pool.deleting:
            return
        since = {error.node for error in pool.errors if error.at_s >= operation.started_s}
        refused = {node.name: why for node, why in view.failures(self.state, pool.key) if node.name in since}
        if refused and refused.keys() == last:
            self.clockwork.made["refused nodes given up early"] += 1
            self._delete(pool, tuple(refused))
            target = self.state.pools[pool.key].groups[0].target
            answer(outcomes.PartlyDone(target, _problem(next(iter(refused.values())))))
            return
        self.clockwork.after(LOOK_S, lambda: self._watch(name, change, frozenset(refused), answer))

    def _delete(self, pool: Pool, names: tuple[NodeName, ...]) -> requests.Outcome:
        group = pool.groups[0]
        return self.ask(requests.DeleteInstances(PROJECT, group.zone, group.name, names, skip_strangers=True))

    def _lowered_beside(self, change: Change, refusal: Refusal) -> Outcome | None:
        """Abandons slots without a machine although an operation is under way."""
        pool = self.state.pools.get(self._pool_key(change.ref))
        if pool is None or refusal.code is not Code.FAILED_PRECONDITION or not isinstance(change, ResizePool):
            return None
        pending = sorted(node.name for node in view.members(self.state, pool.key) if node.instance is None)
        surplus = pool.groups[0].target - change.size
        if not 0 < surplus <= len(pending):
            return None
        self.clockwork.made["pool lowered beside an operation"] += 1
        self._delete(pool, tuple(pending[:surplus]))
        return outcomes.Done()

    def _refusal(self, change: Change, refusal: Refusal) -> Outcome:
        match refusal.code:
            case Code.NOT_FOUND:
                return outcomes.NotFound(refusal.message)
            case Code.ALREADY_EXISTS:
                return outcomes.AlreadyExists(refusal.message)
            case Code.FAILED_PRECONDITION | Code.RESOURCE_EXHAUSTED:
                return outcomes.Busy(refusal.message)
            case Code.PERMISSION_DENIED:
                self.clockwork.made["quota refused what it has no room for"] += 1
                short = tuple(self._shortfalls(change))
                return outcomes.QuotaExceeded(refusal.message, short, in_call=True)
            case _:
                raise Broken(f"the cloud refused {change}: {refusal}")

    def _shortfalls(self, change: Change) -> Iterator[outcomes.Shortfall]:
        if isinstance(change, CreatePool):
            wanted = quotas.Wanted(spec_of(change.plan), change.plan.kind.zone, change.plan.size)
        elif isinstance(change, ResizePool):
            pool = self.state.pools[self._pool_key(change.ref)]
            wanted = quotas.Wanted(pool.spec, pool.groups[0].zone, max(0, change.size - pool.groups[0].target))
        else:
            return
        for each in quotas.shortfalls(self.state, PROJECT, [wanted]):
            yield outcomes.Shortfall(each.metric, each.scope != "", each.wanted, each.free)

    def _request(self, change: Change) -> requests.Request:
        match change:
            case CreatePool(_, cluster, plan, _):
                self._plans[change.ref] = plan
                return requests.CreatePool(self._key(cluster), requests.PoolWish(plan.name, spec_of(plan)))
            case ResizePool(_, ref, size, _):
                return requests.ResizePool(self._pool_key(ref), size)
            case RemoveNodes(_, ref, nodes, _):
                pool = self.state.pools.get(self._pool_key(ref))
                zone, group = (pool.groups[0].zone, pool.groups[0].name) if pool is not None else ("", "")
                names = tuple(map(NodeName, nodes))
                return requests.DeleteInstances(PROJECT, zone, group, names, skip_strangers=True)
            case DeletePool(_, ref, _):
                return requests.DeletePool(self._pool_key(ref))
            case _:
                assert_never(change)

    def _info(self, pool: Pool) -> PoolInfo:
        ref, spec = PoolRef(self._cluster(pool), pool.key.pool), pool.spec
        status, group = _STATUSES[view.pool_status(self.state, pool)], pool.groups[0]
        shortage = self._shortage(pool)
        return PoolInfo(ref, _kind(spec, group.zone), group.target, status, spec.labels, shortage=shortage)

    def _shortage(self, pool: Pool) -> RecentShortage | None:
        """The newest refusal of a node that is still missing."""
        missing = {node.name for node, _ in view.failures(self.state, pool.key)}
        errors = [error for error in pool.errors if error.node in missing]
        return RecentShortage(_problem(errors[-1].why), self.now_s - errors[-1].at_s) if errors else None

    def _pools_of(self, cluster: ClusterName) -> list[Pool]:
        return [pool for pool in view.pools_of(self.state, self._key(cluster)) if pool.key.pool != SYSTEM_POOL]

    def _key(self, cluster: ClusterName) -> ClusterKey:
        return ClusterKey(PROJECT, f"{self.regions[cluster]}", cluster)

    def _pool_key(self, ref: PoolRef) -> PoolKey:
        return PoolKey(*self._key(ref.cluster), ref.pool)

    def _cluster(self, pool: Pool) -> ClusterName:
        return ClusterName(pool.key.cluster)


_STATUSES = {
    view.Status.PROVISIONING: PoolStatus.PROVISIONING,
    view.Status.RUNNING: PoolStatus.RUNNING,
    view.Status.RUNNING_WITH_ERROR: PoolStatus.RUNNING,
    view.Status.RECONCILING: PoolStatus.UPDATING,
    view.Status.STOPPING: PoolStatus.STOPPING,
    view.Status.ERROR: PoolStatus.RUNNING,
}


def _ended(operation: Operation) -> Outcome:
    if operation.failed is None:
        return outcomes.Done()
    if operation.failed.shortage is None:
        return outcomes.Unfinished(operation.failed.message)
    return _problem(operation.failed)


def _problem(failure: Failure) -> outcomes.StockedOut | outcomes.QuotaExceeded:
    if failure.shortage is Shortage.QUOTA:
        return outcomes.QuotaExceeded(failure.message)
    return outcomes.StockedOut(failure.message)


def spec_of(plan: PoolPlan) -> PoolSpec:
    return PoolSpec(
        _machine(plan.kind.machine_type),
        ACCELERATORS[plan.kind.accelerator],
        plan.kind.accelerators,
        plan.kind.spot,
        (plan.kind.zone,),
        plan.size,
        plan.labels,
        disk_gb=10,
        private=True,
    )


def _kind(spec: PoolSpec, zone: str) -> MachineKind:
    name = next(name for name, known in ACCELERATORS.items() if known == spec.accelerator)
    return MachineKind(zone, spec.machine.name, name, spec.accelerators, spec.spot)


def _machine(name: str) -> MachineType:
    found = machine(name)
    assert found is not None, name
    return found
