"""The wire between an allocator and the simulated cloud: requests and answers that are lost, late, or never sent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from controlplane.allocator import events
from controlplane.allocator.effects import Change, CreatePool, DeletePool, RemoveNodes, ResizePool
from controlplane.clouds.interface import ClusterInfo
from controlplane.clouds.outcomes import Outcome, Unreachable
from messages.ids import ClusterName
from tests.allocator.actor import Asker
from tests.simulation.clockwork import Clockwork

STRAY_S = 1.5
"""Seconds after which a request may still arrive whose sender gave up or died."""


class CloudApi(Protocol):
    dark: set[ClusterName]
    """Clusters whose region does not answer."""

    def receive(self, change: Change, answer: Callable[[Outcome], None]) -> None: ...

    def listing(self) -> tuple[ClusterInfo, ...]: ...


@dataclass
class Request:
    """A sent change whose end is not known to the sender."""

    change: Change
    raises: bool
    travelling: bool = True
    waited_for: bool = True
    """The allocator that sent it is alive and does not know its end."""
    sender: Asker | None = None
    cancelled: bool = False
    """The call ended before it arrived."""

    @property
    def size(self) -> int | None:
        if isinstance(self.change, CreatePool):
            return self.change.plan.size
        return self.change.size if isinstance(self.change, ResizePool) else None


class Wire:
    def __init__(self, clockwork: Clockwork, cloud: CloudApi, *, stray_s: float = STRAY_S) -> None:
        """`stray_s`: seconds after which a request may still arrive whose sender gave up or died."""
        self.clockwork = clockwork
        self.cloud = cloud
        self.stray_s = stray_s
        self.requests: list[Request] = []
        self.slow_s: float | None = None
        """The delay in seconds of all messages, while it is set."""

    @property
    def is_quiet(self) -> bool:
        return not any(map(_is_open, self.requests))

    def crash(self, sender: Asker) -> None:
        """Its sender no longer waits for an answer."""
        for request in self.requests:
            if request.sender is sender:
                request.waited_for = False

    def cancel(self, sender: Asker) -> None:
        """End the calls of an allocator whose process continues: requests that have not arrived never will."""
        self.crash(sender)
        for request in self.requests:
            if request.sender is sender and request.travelling:
                request.travelling, request.cancelled = False, True

    def send(self, actor: Asker, request: Request) -> None:
        clockwork, change = self.clockwork, request.change
        clockwork.tell(f"asks: {in_words(change)}")
        request.sender = actor
        self.requests = [*filter(_is_open, self.requests), request]
        reported = False

        def answer(outcome: Outcome) -> None:
            nonlocal reported
            if not reported:
                reported = True
                request.waited_for = False
                clockwork.tell(f"answer to {in_words(change)}: {outcome}")
                actor.post(events.OperationEnded(clockwork.now_s, change.ref, change.operation, outcome))

        def give_up() -> None:
            answer(Unreachable("connection lost"))

        def arrive() -> None:
            if request.cancelled:
                return
            request.travelling = False
            self.cloud.receive(change, lambda outcome: clockwork.after(self.travel_s(), lambda: reply(outcome)))

        def reply(outcome: Outcome) -> None:
            if clockwork.happens(0.05, "answer lost"):
                clockwork.after(1.0, give_up)
            else:
                answer(outcome)

        if change.ref.cluster in self.cloud.dark or clockwork.happens(0.05, "request lost"):
            request.travelling = False
            clockwork.after(1.0, give_up)
        elif clockwork.happens(0.05, "request late, and given up"):
            clockwork.after(self.stray_s * 2 / 15, give_up)
            clockwork.after(clockwork.chance.uniform(self.stray_s / 5, self.stray_s), arrive)
        else:
            clockwork.after(self.travel_s(), arrive)

    def list_pools(self, actor: Asker, number: int) -> None:
        clockwork = self.clockwork

        def look() -> None:
            clusters = self.cloud.listing()
            late = clockwork.happens(0.3, "listing late")
            clockwork.after(clockwork.chance.uniform(0.5, 3.0) if late else self.travel_s(), lambda: tell(clusters))

        def tell(clusters: tuple[ClusterInfo, ...]) -> None:
            actor.post(events.PoolsListed(clockwork.now_s, number, clusters))

        if clockwork.happens(0.1, "listing failed"):
            failed = Unreachable("connection lost")
            clockwork.after(0.3, lambda: actor.post(events.ListingFailed(clockwork.now_s, number, failed)))
        else:
            clockwork.after(self.travel_s(), look)

    def travel_s(self) -> float:
        if self.slow_s is not None:
            return self.slow_s
        if self.clockwork.happens(0.1, "slow request"):
            return self.clockwork.chance.uniform(self.stray_s / 15, self.stray_s)
        return self.clockwork.chance.uniform(0.001, 0.05)


def _is_open(request: Request) -> bool:
    return request.waited_for or request.travelling


def in_words(change: Change) -> str:
    match change:
        case CreatePool(number, _, plan, why):
            return f"{number}: create {plan.kind.zone} with {plan.size} ({why})"
        case ResizePool(number, ref, size, why):
            return f"{number}: resize {ref.pool} to {size} ({why})"
        case RemoveNodes(number, ref, nodes, why):
            return f"{number}: remove {', '.join(nodes)} of {ref.pool} ({why})"
        case DeletePool(number, ref, why):
            return f"{number}: delete {ref.pool} ({why})"
