"""A small cloud for the allocator's simulation: its pools retry, and choose themselves which nodes a shrink removes.

A preempted node comes back under its old name as another machine. A shortage shows inside an operation, while the pool
exists and retries. Quotas refuse a request as a whole; use by others meanwhile shows in the operation.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from controlplane.allocator.effects import Change, CreatePool, DeletePool, RemoveNodes, ResizePool
from controlplane.clouds import outcomes
from controlplane.clouds.interface import (
    PROJECT,
    ClusterInfo,
    Needs,
    PoolInfo,
    PoolPlan,
    PoolRef,
    PoolStatus,
    QuotaKey,
    RecentShortage,
)
from controlplane.clouds.outcomes import Outcome
from messages.clusters import NodeObservation
from messages.ids import ClusterName
from tests.simulation.clockwork import Broken, Clockwork

GROUP_S = 0.5
"""Seconds between two checks of a pool's group for missing machines."""
FORGET_S = 2.0
"""Seconds for which a machine that is gone is still reported."""
LOOK_S = 0.1
OPERATIONS_AT_ONCE = 4


class Life(StrEnum):
    CREATING = "creating"
    RUNNING = "running"
    NOTICED = "noticed"
    HUNG = "hung"
    """It exists and costs money, but is not ready."""
    CORDONED = "cordoned"


@dataclass
class Machine:
    name: str
    uid: str
    life: Life = Life.CREATING
    notice_until_s: float = 0.0


@dataclass
class CloudPool:
    ref: PoolRef
    plan: PoolPlan
    max_nodes: int
    target: int
    machines: dict[str, Machine] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    """Names of preempted nodes, to be used again."""
    ghosts: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Machines that are gone but still reported, by uid, and until when."""
    busy: bool = False
    starved: bool = False
    over_quota: bool = False
    refused_s: float | None = None
    """When a machine was last refused."""
    stopping: bool = False
    updating: bool = False
    """Its nodes are upgraded or repaired."""
    surge: int = 0
    """Extra nodes of an upgrade: the target is larger by them."""

    @property
    def is_full(self) -> bool:
        running = sum(machine.life is not Life.CREATING for machine in self.machines.values())
        return running == len(self.machines) == self.target


class SimulatedCloud:
    def __init__(self, clockwork: Clockwork, capacities: dict[str, int], clusters: tuple[ClusterName, ...]) -> None:
        self.clockwork = clockwork
        self.capacities = capacities
        self.clusters = clusters
        self.limits: dict[PoolRef, int] = {}
        self.pools: dict[PoolRef, CloudPool] = {}
        self.dark: set[ClusterName] = set()
        """Clusters whose region is lost: nothing is created there, and no call is answered."""
        self.on_change: Callable[[ClusterName], None] = lambda cluster: None
        self.on_shrink: Callable[[Machine], None] = lambda machine: None
        """Called with machines that ran and that the cloud chose to remove."""
        self.quotas: dict[QuotaKey, int] = {}
        self.needs: dict[PoolRef, Needs] = {}
        self.on_quota_refusal: Callable[[], None] = lambda: None
        self.boot_s = (0.5, 5.0)
        self._numbers = itertools.count(1)

    # Reads

    def listing(self) -> tuple[ClusterInfo, ...]:
        return tuple(
            ClusterInfo(name, str(name), True, {}, tuple(map(self._info, self._pools_of(name))))
            for name in self.clusters
        )

    def observation(self, cluster: ClusterName) -> tuple[NodeObservation, ...]:
        now_s = self.clockwork.now_s
        observations: dict[str, NodeObservation] = {}
        for pool in self._pools_of(cluster):
            for name, (uid, until_s) in pool.ghosts.items():
                if now_s < until_s:
                    observations[name] = NodeObservation(node=name, uid=uid, pool=pool.ref.pool, ready=False)
            for machine in pool.machines.values():
                if machine.life is not Life.CREATING:
                    noticed = machine.life in (Life.NOTICED, Life.CORDONED)
                    observations[machine.name] = NodeObservation(
                        node=machine.name,
                        uid=machine.uid,
                        pool=pool.ref.pool,
                        ready=machine.life is not Life.HUNG,
                        was_ready=machine.life is Life.HUNG,
                        notice_s=max(0.0, machine.notice_until_s - now_s) if noticed else None,
                        cordoned=machine.life is Life.CORDONED,
                    )
        return tuple(observations.values())

    def running(self) -> dict[str, tuple[CloudPool, Machine]]:
        """Healthy machines by uid."""
        return {
            machine.uid: (pool, machine)
            for pool in self.pools.values()
            for machine in pool.machines.values()
            if machine.life is Life.RUNNING
        }

    @property
    def target(self) -> int:
        return sum(pool.target for pool in self.pools.values())

    # Changes

    def receive(self, change: Change, answer: Callable[[Outcome], None]) -> None:
        """Answer at once with a refusal, or when the operation has ended."""
        refusal = self._refusal(change)
        if refusal is not None:
            answer(self._lowered_beside(change) or refusal)
            return
        pool = self._apply(change)
        pool.busy = True
        started_s = self.clockwork.now_s
        least_s = self.clockwork.chance.uniform(0.2, 2.0)
        patience_s = self.clockwork.chance.uniform(3.0, 8.0)
        waits_s = self.clockwork.chance.uniform(2.0, 6.0) if isinstance(change, CreatePool | ResizePool) else 1e9
        is_cut = False

        def look() -> None:
            nonlocal is_cut
            lasted_s = self.clockwork.now_s - started_s
            if is_cut:
                if lasted_s >= patience_s:
                    pool.busy = False
                else:
                    self.clockwork.after(LOOK_S, look)
                return
            if pool.starved and waits_s < 1e9 and self.clockwork.happens(0.05, "refused nodes given up early"):
                is_cut = True
                pool.target = len(pool.machines)
                pool.names.clear()
                answer(outcomes.PartlyDone(pool.target, outcomes.StockedOut("ZONE_RESOURCE_POOL_EXHAUSTED")))
                self.clockwork.after(LOOK_S, look)
                return
            outcome = self._outcome(change, pool, lasted_s >= patience_s)
            if outcome is None or lasted_s < least_s:
                is_over = waits_s <= lasted_s < waits_s + LOOK_S
                if is_over and self.clockwork.happens(0.5, "operation not waited for to its end"):
                    answer(outcomes.Unfinished("no end in time"))
                self.clockwork.after(LOOK_S, look)
                return
            pool.busy = False
            if isinstance(change, DeletePool):
                del self.pools[pool.ref]
            answer(outcome)

        self.clockwork.after(LOOK_S, look)

    def preempt(self, pool: CloudPool, machine: Machine, notice_s: float) -> None:
        if notice_s > 0:
            machine.life = Life.NOTICED
            machine.notice_until_s = self.clockwork.now_s + notice_s
            self.clockwork.after(notice_s, lambda: self._take(pool, machine))
        else:
            self._take(pool, machine)
        self.on_change(pool.ref.cluster)

    def hang(self, pool: CloudPool, machine: Machine, after_s: float, then: Callable[[], None]) -> None:
        """Make a node unready; `then` runs later if the node still hangs."""
        machine.life = Life.HUNG
        self.on_change(pool.ref.cluster)

        def look() -> None:
            if pool.machines.get(machine.name) is machine and machine.life is Life.HUNG:
                then()

        self.clockwork.after(after_s, look)

    def recover(self, pool: CloudPool, machine: Machine) -> None:
        machine.life = Life.RUNNING
        self.on_change(pool.ref.cluster)

    def repair(self, pool: CloudPool, machine: Machine) -> None:
        """Re-create the node under its name, if no other operation is in progress."""
        if pool.busy or pool.updating or pool.stopping:
            self.clockwork.after(1.0, partial(self.hang, pool, machine, 0.0, partial(self.repair, pool, machine)))
            return
        pool.updating = True
        self._take(pool, machine, lingers=False)
        self._when(lambda: pool.is_full, partial(self._updated, pool))

    def upgrade(self, pool: CloudPool, surge: bool) -> None:
        """Cordon, drain and re-create each node in turn; an extra node of a surge comes first and leaves last."""
        if pool.busy or pool.updating or pool.stopping or not pool.machines:
            return
        pool.updating = True
        old = [machine for machine in pool.machines.values() if machine.life is Life.RUNNING]
        pool.surge = int(surge)
        pool.target += pool.surge
        names = set(pool.machines) | set(pool.names)
        self._when(lambda: pool.is_full or not surge, lambda: self._upgrade_next(pool, old, names))

    def _upgrade_next(self, pool: CloudPool, old: list[Machine], names: set[str]) -> None:
        old = [each for each in old if pool.machines.get(each.name) is each and each.life is Life.RUNNING]
        if not old:
            pool.target, pool.surge = max(0, pool.target - pool.surge), 0
            for name in [name for name in pool.machines if name not in names][: len(pool.machines) - pool.target]:
                self._drop(pool, name)
            self._shrink(pool)
            self._updated(pool)
            return
        machine = old[0]
        machine.life, machine.notice_until_s = Life.CORDONED, self.clockwork.now_s + 2.0
        self.on_change(pool.ref.cluster)

        def drained() -> None:
            self._take(pool, machine, lingers=False)
            self._when(lambda: pool.is_full, lambda: self._upgrade_next(pool, old[1:], names))

        self.clockwork.after(1.0, drained)

    def _updated(self, pool: CloudPool) -> None:
        pool.updating = False

    def _when(self, holds: Callable[[], bool], then: Callable[[], None]) -> None:
        """Call back when nothing blocks, or after a while anyway."""
        deadline_s = self.clockwork.now_s + 15.0

        def look() -> None:
            if holds() or self.clockwork.now_s >= deadline_s:
                then()
            else:
                self.clockwork.after(LOOK_S, look)

        look()

    def take_at_once(self, pool: CloudPool, machine: Machine) -> None:
        """Remove a machine, and stop its reports."""
        self._take(pool, machine, lingers=False)

    def lose_region(self, cluster: ClusterName) -> None:
        """Remove a machine without a notice."""
        died = [(pool, machine) for pool in self._pools_of(cluster) for machine in pool.machines.values()]
        self.dark.add(cluster)
        for pool, machine in died:
            self._take(pool, machine)

    # Inside

    def _refusal(self, change: Change) -> Outcome | None:
        clockwork = self.clockwork
        pool = self.pools.get(change.ref)
        if clockwork.happens(0.05, "throttled"):
            return outcomes.Throttled("too many requests")
        if isinstance(change, CreatePool):
            if pool is not None:
                return outcomes.AlreadyExists(change.ref.pool)
            if clockwork.happens(0.03, "quota refused the call"):
                return outcomes.QuotaExceeded("GPUS", in_call=True)
        elif pool is None:
            return outcomes.NotFound(change.ref.pool)
        elif pool.busy or (pool.updating and not isinstance(change, RemoveNodes)):
            return outcomes.Busy("another operation is under way")
        under_way = sum(other.busy for other in self._pools_of(change.ref.cluster))
        if under_way >= OPERATIONS_AT_ONCE:
            return outcomes.Busy("too many operations")
        short = tuple(self._shortfalls(change))
        if not short:
            return None
        clockwork.made["quota refused what it has no room for"] += 1
        self.on_quota_refusal()
        return outcomes.QuotaExceeded(f"quota {short[0].metric} is too small", short, in_call=True)

    def _shortfalls(self, change: Change) -> Iterator[outcomes.Shortfall]:
        """Refuse a request as a whole if its quota has no room beside the current machines."""
        if not isinstance(change, CreatePool | ResizePool):
            return
        size = change.plan.size if isinstance(change, CreatePool) else change.size
        more = size - (self.pools[change.ref].target if change.ref in self.pools else 0)
        for key, amount in self.needs.get(change.ref, {}).items():
            free = self._free(key)
            if amount * more > free:
                yield outcomes.Shortfall(key.metric, key.scope != PROJECT, amount * more, max(0, free))

    def _free(self, key: QuotaKey) -> float:
        if key not in self.quotas:
            return math.inf
        used = sum(self.needs[pool.ref].get(key, 0) * len(pool.machines) for pool in self.pools.values())
        return self.quotas[key] - used

    def _lowered_beside(self, change: Change) -> Outcome | None:
        """Slots without a machine can be removed although an operation is in progress."""
        pool = self.pools.get(change.ref)
        if pool is None or not pool.busy or not isinstance(change, ResizePool):
            return None
        if not len(pool.machines) <= change.size < pool.target:
            return None
        self.clockwork.made["pool lowered beside an operation"] += 1
        pool.target = change.size
        self._shrink(pool)
        return outcomes.Done()

    def _apply(self, change: Change) -> CloudPool:
        match change:
            case CreatePool(_, _, plan, _):
                pool = CloudPool(change.ref, plan, self.limits[change.ref], plan.size)
                self.pools[change.ref] = pool
                self.clockwork.after(0.01, lambda: self._tend(pool))
            case ResizePool(_, _, size, _):
                pool = self.pools[change.ref]
                pool.target = size
                self._shrink(pool)
            case RemoveNodes(_, _, names, _):
                pool = self.pools[change.ref]
                known = [name for name in names if name in pool.machines or name in pool.names]
                pool.target = max(0, pool.target - len(known))
                for name in known:
                    self._drop(pool, name)
            case DeletePool():
                pool = self.pools[change.ref]
                pool.stopping = True
                pool.target = 0
                for name in list(pool.machines):
                    self._drop(pool, name)
        if pool.target > pool.max_nodes:
            raise Broken(f"pool {pool.ref.pool} aims at {pool.target} nodes, {pool.max_nodes} are allowed")
        return pool

    def _outcome(self, change: Change, pool: CloudPool, patience_is_over: bool) -> Outcome | None:
        if isinstance(change, RemoveNodes | DeletePool) or pool.is_full:
            return outcomes.Done()
        if not (patience_is_over and pool.starved):
            return None
        if pool.over_quota or self.clockwork.happens(0.2, "quota inside an operation"):
            self.on_quota_refusal()
            return outcomes.QuotaExceeded("GCE_QUOTA_EXCEEDED")
        self.clockwork.made["stockout inside an operation"] += 1
        return outcomes.StockedOut("GCE_STOCKOUT")

    def _tend(self, pool: CloudPool) -> None:
        """The repeated check of an instance group."""
        if self.pools.get(pool.ref) is not pool:
            return
        pool.starved = pool.over_quota = False
        while len(pool.machines) < pool.target and pool.ref.cluster not in self.dark:
            pool.over_quota = any(amount > self._free(key) for key, amount in self.needs.get(pool.ref, {}).items())
            if pool.over_quota or self._used(pool.plan.kind.zone) >= self.capacities[pool.plan.kind.zone]:
                pool.starved, pool.refused_s = True, self.clockwork.now_s
                break
            number = next(self._numbers)
            again = pool.names.pop(0) if pool.names else None
            if again is not None:
                self.clockwork.made["node came back under its name"] += 1
            machine = Machine(again or f"{pool.plan.kind.zone}-{number}", f"uid-{number}")
            pool.machines[machine.name] = machine
            self.clockwork.after(self.clockwork.chance.uniform(*self.boot_s), partial(self._boot, pool, machine))
        self.clockwork.after(GROUP_S, lambda: self._tend(pool))

    def _boot(self, pool: CloudPool, machine: Machine) -> None:
        if pool.machines.get(machine.name) is machine and machine.life is Life.CREATING:
            machine.life = Life.RUNNING
            pool.ghosts.pop(machine.name, None)
            self.on_change(pool.ref.cluster)

    def _take(self, pool: CloudPool, machine: Machine, *, lingers: bool | None = None) -> None:
        """Remove machines; some are still reported for a while, at random by default."""
        if pool.machines.get(machine.name) is not machine:
            return
        del pool.machines[machine.name]
        pool.names.append(machine.name)
        if lingers is None:
            lingers = self.clockwork.chance.random() < 0.5
        if lingers:
            pool.ghosts[machine.name] = (machine.uid, self.clockwork.now_s + FORGET_S)
            self.clockwork.after(FORGET_S, lambda: self.on_change(pool.ref.cluster))
        self.on_change(pool.ref.cluster)

    def _shrink(self, pool: CloudPool) -> None:
        """The victims of a shrink: slots without a machine, then machines in creation, then random ones."""
        while len(pool.machines) > pool.target:
            machines = list(pool.machines.values())
            making = [machine for machine in machines if machine.life is Life.CREATING]
            chosen = self.clockwork.chance.choice(making or machines)
            if chosen.life is Life.RUNNING:
                self.clockwork.made["shrink hit a running node"] += 1
                self.clockwork.tell(f"the cloud shrinks {pool.ref.pool} by {chosen.name}, which was running")
                self.on_shrink(chosen)
            self._drop(pool, chosen.name)
        del pool.names[max(0, pool.target - len(pool.machines)) :]

    def _drop(self, pool: CloudPool, name: str) -> None:
        pool.machines.pop(name, None)
        if name in pool.names:
            pool.names.remove(name)
        self.on_change(pool.ref.cluster)

    def _used(self, zone: str) -> int:
        return sum(len(pool.machines) for pool in self.pools.values() if pool.plan.kind.zone == zone)

    def _pools_of(self, cluster: ClusterName) -> list[CloudPool]:
        return [pool for pool in self.pools.values() if pool.ref.cluster == cluster]

    def _info(self, pool: CloudPool) -> PoolInfo:
        status = PoolStatus.RUNNING
        if pool.stopping:
            status = PoolStatus.STOPPING
        elif pool.busy:
            status = PoolStatus.PROVISIONING
        elif pool.updating:
            status = PoolStatus.UPDATING
        plan = pool.plan
        return PoolInfo(
            pool.ref,
            plan.kind,
            pool.target,
            status,
            plan.labels,
            shortage=self._shortage(pool),
        )

    def _shortage(self, pool: CloudPool) -> RecentShortage | None:
        """The last refusal, even an old one, since the cloud keeps its errors."""
        none_left = outcomes.StockedOut("ZONE_RESOURCE_POOL_EXHAUSTED")
        if pool.refused_s is None:
            return RecentShortage(none_left, 3600.0) if self.clockwork.happens(0.05, "old refusal listed") else None
        return RecentShortage(none_left, self.clockwork.now_s - pool.refused_s) if pool.starved else None
