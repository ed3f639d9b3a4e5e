"""Checks of what must hold by the cloud's own account, independent of the allocator's state."""

import math
from collections.abc import Mapping
from typing import Protocol

from controlplane.allocator.counting import held, lost, noticed, sidelined
from controlplane.allocator.effects import DeletePool, RemoveNodes, ResizePool
from controlplane.clouds.interface import PoolRef
from messages.ids import ClusterName
from tests.allocator.actor import Asker
from tests.allocator.wire import Request, Wire
from tests.simulation.clockwork import Broken, Clockwork

IN_USE_S = 3.0
"""Seconds after which the allocator must know of a change."""


class MachineTruth(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def life(self) -> str: ...


class PoolTruth(Protocol):
    @property
    def ref(self) -> PoolRef: ...

    @property
    def target(self) -> int: ...

    @property
    def surge(self) -> int: ...

    @property
    def machines(self) -> Mapping[str, MachineTruth]: ...


class CloudTruth(Protocol):
    """The true state of the cloud."""

    @property
    def pools(self) -> Mapping[PoolRef, PoolTruth]: ...

    def running(self) -> Mapping[str, tuple[PoolTruth, MachineTruth]]: ...


class Account:
    def __init__(self, clockwork: Clockwork, cloud: CloudTruth, wire: Wire) -> None:
        self.clockwork = clockwork
        self.cloud = cloud
        self.wire = wire
        self.busy: dict[str, float] = {}
        """Machines that the job uses, by uid, and since when."""

    def check(self, actor: Asker, request: Request) -> None:
        """Check a change before it is sent."""
        change = request.change
        mine = [other for other in self.wire.requests if other.sender is actor and other.waited_for]
        waiting = [other for other in mine if other.change.ref == change.ref]
        if waiting:
            raise Broken(f"two operations at once on pool {change.ref.pool}")
        if actor.allocator.pools[change.ref].updating and not isinstance(change, DeletePool):
            raise Broken(f"pool {change.ref.pool} is changed while the cloud upgrades or repairs its nodes")
        pool = self.cloud.pools.get(change.ref)
        if request.raises:
            self._check_quotas(actor, request)
            self.check_caps(actor, request)
        elif isinstance(change, ResizePool) and pool is not None:
            known = [
                uid for uid, (home, _) in self.cloud.running().items() if home.ref == change.ref and uid in actor.seen
            ]
            if change.size < len(known):
                raise Broken(f"pool {change.ref.pool} shrinks to {change.size}, it has {len(known)} known nodes")
        elif isinstance(change, RemoveNodes) and pool is not None:
            for name in change.nodes:
                self._check_unused(actor, change.ref.cluster, pool.machines.get(name))

    def _check_quotas(self, actor: Asker, request: Request) -> None:
        """Count what may come, and existing machines that the allocator was told of, whatever it knows of them."""
        coming, quotas = self.may_come(actor, request), actor.allocator.quotas
        pools = actor.allocator.pools
        needs = {ref: quotas.needs.get(pool.offer.kind, {}) for ref, pool in pools.items()}
        going = {
            name for each in self.wire.requests if isinstance(each.change, RemoveNodes) for name in each.change.nodes
        }
        for key, need in needs[request.change.ref].items():
            quota = quotas.left.get(key, math.inf)
            used = sum(coming.get(ref, 0) * each.get(key, 0) for ref, each in needs.items())
            if used > quota:
                raise Broken(f"{used} of {key} may come, above the quota of {quota}")
            there = need * (request.size or 0) + sum(
                needs[ref].get(key, 0)
                for ref, pool in self.cloud.pools.items()
                if ref != request.change.ref and ref in needs
                for name, machine in pool.machines.items()
                if machine.uid in actor.seen and name not in going
            )
            if there > quota:
                raise Broken(f"{there} of {key} there or asked for, which the quota of {quota} would refuse")

    def check_caps(self, actor: Asker, request: Request) -> None:
        count = sum(self.may_come(actor, request).values())
        if count > actor.allocator.wanted:
            raise Broken(f"{self.may_come(actor, request)} nodes may come, {actor.allocator.wanted} are wanted")

    def may_come(self, actor: Asker, request: Request) -> dict[PoolRef, int]:
        """The highest target that the pool may get, whichever of the sent requests arrive."""
        refs = {*self.cloud.pools, *(other.change.ref for other in self.wire.requests), request.change.ref}
        return {ref: self._most(actor, ref, request) for ref in refs}

    def _check_unused(self, actor: Asker, cluster: ClusterName, machine: MachineTruth | None) -> None:
        """A machine whose use began after the last report of its cluster is not known to be in use."""
        if machine is None or machine.uid not in actor.seen or machine.life != "running":
            return
        since_s = self.busy.get(machine.uid)
        seen_s = actor.sighted_s.get(cluster, 0.0)
        if since_s is not None and since_s < seen_s and self.clockwork.now_s - since_s > IN_USE_S:
            raise Broken(f"node {machine.name} is removed though the job uses it")

    def _most(self, actor: Asker, ref: PoolRef, sent: Request) -> int:
        pool = self.cloud.pools.get(ref)
        targets = [pool.target - pool.surge if pool is not None else 0]
        open_requests = [
            other
            for other in (*self.wire.requests, sent)
            if other.change.ref == ref and (other.waited_for or other.travelling)
        ]
        # A request of an earlier leader for the pool's current target changes nothing.
        rising = [
            request
            for request in open_requests
            if request.raises and (request.sender is actor or request is sent or (request.size or 0) > targets[0])
        ]
        known = actor.allocator.pools.get(ref)
        if known is not None and known.abandoned and not rising:
            return held(known)
        going = len(known.written_off) + sidelined(known) if known is not None else 0
        if known is not None and not rising:
            going += noticed(known)
        for request in open_requests:
            size = request.size
            if request.raises and size is not None:
                targets.append(size)
            elif request.waited_for and isinstance(request.change, ResizePool):
                targets = [request.change.size]
            elif request.waited_for and isinstance(request.change, RemoveNodes) and known is not None:
                removed = ({node.name for node in lost(known)} | known.vacant.keys()) - known.written_off
                going += len(removed & set(request.change.nodes))
        return max(0, max(targets) - going)
