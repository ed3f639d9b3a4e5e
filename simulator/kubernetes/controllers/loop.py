"""Runs the controllers of one cluster after each change, and when something is due."""

import asyncio
from collections.abc import Callable, Iterable

from runtime.clock import Clock
from runtime.logs import Once, logger
from simulator.kubernetes.controllers import daemons, garbage, nodes, scheduler, workloads
from simulator.kubernetes.controllers.actions import Action, perform
from simulator.kubernetes.history import Change, ChangeType
from simulator.kubernetes.objects import Obj, is_deleting
from simulator.kubernetes.problems import ApiProblem
from simulator.kubernetes.resources import DAEMON_SETS, DEPLOYMENTS, EVENTS, LEASES, NODES, PODS, REPLICA_SETS, Resource
from simulator.kubernetes.server import ApiServer

_PAUSE_S = 0.005
"""Pause in seconds, so that changes that come together are handled together."""
_RETRY_S = 1.0
_ROUNDS = 20


class Controllers:
    def __init__(self, cluster: str, server: ApiServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._changed = asyncio.Event()
        self._changed.set()
        self._wakes_s: list[float] = []
        self._may_be_garbage = True
        self._log = logger(cluster=cluster)
        self._log_once = Once()
        server.store.listeners.append(self._on_change)

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._something_to_do()
            self._changed.clear()
            self._wakes_s.clear()
            for _ in range(_ROUNDS):
                if not self.reconcile():
                    break
            await asyncio.sleep(_PAUSE_S)

    def reconcile(self) -> bool:
        """Runs every controller once, each on the results of those before; returns True if anything changed."""
        steps: tuple[Callable[[], Iterable[Action]], ...] = (
            self._taints,
            self._orphans,
            self._evictions,
            self._garbage,
            self._deployments,
            self._replica_sets,
            self._daemon_sets,
            self._schedule,
            lambda: garbage.forget_events(self._all(EVENTS)),
        )
        before = self._server.store.version
        for step in steps:
            for action in step():
                self._perform(action)
        return self._server.store.version != before

    def _perform(self, action: Action) -> None:
        try:
            perform(self._server, action)
        except ApiProblem as problem:
            self._wakes_s.append(self._clock.wall_s() + _RETRY_S)
            if self._log_once(str(problem)):
                self._log.warning("controller_refused", action=type(action).__name__, why=str(problem))

    def _taints(self) -> list[Action]:
        return nodes.taint_nodes(self._all(NODES), self._clock.wall_s())

    def _orphans(self) -> list[Action]:
        return nodes.collect_orphans(self._all(PODS), self._all(NODES), self._clock.wall_s())

    def _evictions(self) -> list[Action]:
        verdict = nodes.evict(self._all(PODS), self._all(NODES), self._clock.wall_s())
        if verdict.wake_s is not None:
            self._wakes_s.append(verdict.wake_s)
        return verdict.actions

    def _garbage(self) -> list[Action]:
        if not self._may_be_garbage:
            return []
        self._may_be_garbage = False
        everything = [(resource, self._all(resource)) for resource in self._server.registry]
        return [*garbage.collect_dependants(everything), *garbage.empty_namespaces(everything)]

    def _deployments(self) -> list[Action]:
        sets, now = self._all(REPLICA_SETS), self._server.store.now
        return [action for each in self._all(DEPLOYMENTS) for action in workloads.keep_replica_sets(each, sets, now)]

    def _replica_sets(self) -> list[Action]:
        pods = self._all(PODS)
        return [action for each in self._all(REPLICA_SETS) for action in workloads.keep_pods(each, pods)]

    def _daemon_sets(self) -> list[Action]:
        pods, hosts = self._all(PODS), self._all(NODES)
        return [action for each in self._all(DAEMON_SETS) for action in daemons.keep_daemons(each, pods, hosts)]

    def _schedule(self) -> list[Action]:
        return scheduler.schedule(self._all(PODS), self._all(NODES), self._server.store.now)

    def _all(self, resource: Resource) -> list[Obj]:
        return self._server.store.all(resource)

    def _on_change(self, resource: Resource, change: Change) -> None:
        if resource.id in (EVENTS.id, LEASES.id):
            return
        self._changed.set()
        if change.type is ChangeType.DELETED or is_deleting(change.object) or change.type is ChangeType.ADDED:
            self._may_be_garbage = True

    async def _something_to_do(self) -> None:
        if not self._wakes_s:
            await self._changed.wait()
            return
        left_s = min(self._wakes_s) - self._clock.wall_s()
        try:
            async with asyncio.timeout(max(_PAUSE_S, left_s)):
                await self._changed.wait()
        except TimeoutError:
            return
