"""The allocator's process in a simulation: the core, its wake-ups, and a simulated shell."""

from typing import Protocol

from controlplane.allocator import events
from controlplane.allocator.decide import decide
from controlplane.allocator.effects import AllocatorEffect
from controlplane.allocator.invariants import check
from controlplane.allocator.state import Allocator
from messages.clusters import NodeObservation
from messages.ids import ClusterName
from tests.simulation.clockwork import Broken, Clockwork

SOME_TIME_S = 1e-5


class Asker(Protocol):
    """An allocator that requests changes from a cloud."""

    @property
    def allocator(self) -> Allocator: ...

    @property
    def seen(self) -> set[str]:
        """Uids of machines that were reported to it."""

    @property
    def sighted_s(self) -> dict[ClusterName, float]:
        """When each cluster was last seen."""

    def post(self, event: events.AllocatorEvent) -> None: ...


class World(Protocol):
    sent_observations: dict[int, tuple[NodeObservation, ...]]

    def idle(self, cluster: ClusterName) -> tuple[str, ...]: ...

    def decided(self, allocator: Allocator) -> None: ...

    def perform(self, actor: "Actor", effect: AllocatorEffect) -> None: ...


class Actor:
    """The allocator's process: core and simulated shell."""

    def __init__(self, world: World, allocator: Allocator, clockwork: Clockwork) -> None:
        self.world = world
        self.clockwork = clockwork
        self.alive = True
        self.allocator = allocator
        self.seen: set[str] = set()
        """Uids of machines that were reported to this process."""
        self.observations: dict[ClusterName, int] = {}
        self.sighted_s: dict[ClusterName, float] = {}
        self._wake = 0
        self.clockwork.after(0.0, lambda: self.post(events.Ticked(self.clockwork.now_s)))

    def post(self, event: events.AllocatorEvent) -> None:
        if not self.alive:
            return
        before = self.allocator
        decision = decide(before, event)
        self.allocator = decision.state
        broken = check(before, self.allocator, decision.effects)
        if broken:
            raise Broken(f"after {event}: {'; '.join(broken)}")
        self.world.decided(self.allocator)
        for effect in decision.effects:
            self.world.perform(self, effect)
        self._wake_at(decision.wake_at_s)

    def see(self, cluster: ClusterName, number: int) -> None:
        """Post a report, unless it is older than the last one of its cluster."""
        if number > self.observations.get(cluster, 0) and self.alive:
            self.observations[cluster] = number
            self.sighted_s[cluster] = self.clockwork.now_s
            observation = self.world.sent_observations[number]
            self.seen |= {node.uid for node in observation}
            self.post(events.NodesSeen(self.clockwork.now_s, cluster, observation, self.world.idle(cluster)))

    def _wake_at(self, at_s: float | None) -> None:
        self._wake += 1
        mine = self._wake

        def tick() -> None:
            if mine == self._wake:
                self.post(events.Ticked(self.clockwork.now_s))

        if at_s is not None:
            self.clockwork.after(max(SOME_TIME_S, at_s - self.clockwork.now_s), tick)
