"""The shell of one job's allocator. It performs operations of the cloud and returns each result as an event."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import assert_never

from controlplane.allocator import effects, events
from controlplane.allocator.effects import AllocatorEffect
from controlplane.allocator.events import AllocatorEvent
from controlplane.allocator.offers import Offer
from controlplane.capacity.planner import Planner
from controlplane.capacity.start_policy import PullHint
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import Cloud, PoolPlan, PoolRef, Taint
from controlplane.clouds.outcomes import Outcome, Refused, Unreachable
from controlplane.planning.criteria import Criteria
from messages.events import Event
from messages.ids import JobName
from messages.labels import JOB_LABEL
from runtime.clock import Clock

Complete = Callable[[PoolPlan], PoolPlan]
"""Adds the fleet's common labels, taints and shutdown grace to a pool."""


@dataclass(frozen=True, slots=True)
class FleetTerms:
    """The fleet file's settings for machines."""

    offers: tuple[Offer, ...]
    """Offers in order of preference."""
    complete: Complete = lambda plan: plan
    pull_hint: PullHint = lambda image: ""


@dataclass(frozen=True, slots=True)
class Outlets:
    """The receivers of an allocator's effects that do not concern the cloud."""

    announce: Callable[[Event], None]
    place: Callable[[JobName, effects.Place], None]
    follow: Callable[[JobName, Criteria], None]
    share: Callable[[JobName, MachineKind], None]


class AllocatorShell:
    def __init__(
        self,
        job: JobName,
        cloud: Cloud,
        complete: Complete,
        clock: Clock,
        outlets: Outlets,
        planner: Planner,
    ) -> None:
        self._job = job
        self._cloud = cloud
        self._complete = complete
        self._clock = clock
        self._outlets = outlets
        self._planner = planner

    def perform(self, effect: AllocatorEffect) -> Awaitable[AllocatorEvent | None] | None:
        match effect:
            case effects.CreatePool(operation, cluster, plan, _):
                ours = replace(plan, taints=(*plan.taints, Taint(JOB_LABEL, self._job, "NoSchedule")))
                return self._operate(effect.ref, operation, self._cloud.create_pool(cluster, self._complete(ours)))
            case effects.ResizePool(operation, ref, size, _):
                return self._operate(ref, operation, self._cloud.resize_pool(ref, size))
            case effects.RemoveNodes(operation, ref, nodes, _):
                return self._operate(ref, operation, self._cloud.remove_nodes(ref, nodes))
            case effects.DeletePool(operation, ref, _):
                return self._operate(ref, operation, self._cloud.delete_pool(ref))
            case effects.ListPools(listing, _):
                return self._list(listing)
            case effects.MakePlan():
                return self._plan(effect)
            case effects.Place():
                self._outlets.place(self._job, effect)
            case effects.FollowMarket(criteria):
                self._outlets.follow(self._job, criteria)
            case effects.ShareStock(kind):
                self._outlets.share(self._job, kind)
            case effects.Announce(kind, text, why, fields):
                self._outlets.announce(Event(self._job, kind, text, why, fields))
            case _:
                assert_never(effect)
        return None

    async def _operate(self, ref: PoolRef, operation: int, work: Awaitable[Outcome]) -> AllocatorEvent:
        outcome = await work
        return events.OperationEnded(self._clock.monotonic_s(), ref, operation, outcome)

    async def _plan(self, asked: effects.MakePlan) -> AllocatorEvent | None:
        made = await self._planner.make(asked)
        return events.Planned(self._clock.monotonic_s(), asked.number, made) if made is not None else None

    async def _list(self, listing: int) -> AllocatorEvent:
        answer = await self._cloud.clusters()
        now_s = self._clock.monotonic_s()
        if isinstance(answer, Unreachable | Refused):
            return events.ListingFailed(now_s, listing, answer)
        return events.PoolsListed(now_s, listing, tuple(answer))
