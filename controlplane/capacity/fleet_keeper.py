"""The fleet's clusters, kept ready: made or adopted, then bootstrapped. Made ahead, never on the path of a recovery.

A cluster of which nothing is heard any more is looked after again: it may be another one under the same name, or have
lost what was put into it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

from controlplane.capacity.interface import LastHeard
from controlplane.clouds.interface import Cloud, ClusterPlan
from controlplane.clouds.outcomes import Done, Refused, Unreachable, reason_of
from controlplane.fleet.upkeep import SILENCE_FIRST_S, Watch, next_step
from messages.events import FLEET, Event
from messages.ids import ClusterName
from runtime.backoff import pauses
from runtime.clock import Clock
from runtime.logs import logger

PAUSE_FIRST_S = 1.0
PAUSE_MOST_S = 60.0


class Installs(Protocol):
    """Puts what a cluster needs into it, and returns when it is there."""

    async def __call__(self, cluster: ClusterName) -> None: ...


@dataclass(frozen=True, slots=True)
class Controllers:
    """What the master knows of clusters from their controllers, and does about it."""

    heard_s: LastHeard
    report_wait: Callable[[ClusterName, str], None]
    """Takes what a cluster waits for; empty when it is ready."""
    outwait: Callable[[ClusterName], Awaitable[None]] | None = None
    """Returns when a silent controller does not fail for a reason that is known."""


class FleetKeeper:
    def __init__(
        self,
        cloud: Cloud,
        clusters: Sequence[ClusterPlan],
        install: Installs,
        announce: Callable[[Event], None],
        controllers: Controllers,
        clock: Clock,
        silence_s: float = SILENCE_FIRST_S,
    ) -> None:
        self._cloud = cloud
        self._clusters = clusters
        self._install = install
        self._announce = announce
        self._controllers = controllers
        self._clock = clock
        self._silence_s = silence_s
        self._log = logger()

    async def run(self) -> None:
        """Until cancelled; each cluster goes its own way, so that one that cannot be had holds up no other."""
        async with asyncio.TaskGroup() as tasks:
            for plan in self._clusters:
                tasks.create_task(self._keep(plan), name=f"fleet/{plan.name}")

    async def _keep(self, plan: ClusterPlan) -> None:
        await self._make_ready(plan)
        self._tell("cluster_ready", plan, f"cluster {plan.name} in {plan.location} is ready", "made or adopted")
        watch = Watch(self._clock.monotonic_s(), self._silence_s)
        while True:
            heard_s = await self._until_silent(plan.name, watch)
            if watch.was_heard(heard_s):
                why = "it may have lost what was installed in it, which is looked after"
                self._tell("cluster_silent", plan, f"nothing is heard of cluster {plan.name}", why)
            await self._make_ready(plan)
            if self._controllers.outwait is not None:
                await self._controllers.outwait(plan.name)
            watch = watch.again(heard_s, self._clock.monotonic_s(), self._silence_s)

    async def _until_silent(self, cluster: ClusterName, watch: Watch) -> float | None:
        """When it was last heard."""
        while True:
            heard_s = self._controllers.heard_s(cluster)
            left_s = watch.silent_at_s(heard_s) - self._clock.monotonic_s()
            if left_s <= 0:
                return heard_s
            await asyncio.sleep(left_s)

    async def _make_ready(self, plan: ClusterPlan) -> None:
        before = ""
        for pause_s in pauses(PAUSE_FIRST_S, PAUSE_MOST_S):
            waits = await self._make(plan)
            if waits is None:
                break
            if waits != before:
                self._controllers.report_wait(plan.name, waits)
                self._log.warning("cluster_not_ready", cluster=plan.name, why=waits)
                self._tell("cluster_waits", plan, f"cluster {plan.name} is not ready", waits)
                before = waits
            await asyncio.sleep(pause_s)
        self._controllers.report_wait(plan.name, "")
        await self._install(plan.name)

    async def _make(self, plan: ClusterPlan) -> str | None:
        """None when it is there and ready; otherwise why it is not."""
        listed = await self._cloud.clusters()
        if isinstance(listed, Unreachable | Refused):
            return reason_of(listed)
        step = next_step(plan, next((cluster for cluster in listed if cluster.name == plan.name), None))
        match step.do:
            case "use":
                return None
            case "wait":
                return step.why
            case "create":
                outcome = await self._cloud.create_cluster_with_node_pool(plan)
                return None if isinstance(outcome, Done) else reason_of(outcome)
            case "remove":
                outcome = await self._cloud.delete_cluster(plan.name)
                if not isinstance(outcome, Done):
                    return f"its creation failed, and it could not be removed: {reason_of(outcome)}"
                return f"its creation failed, so it is removed and made again: {step.why}"
            case _:
                assert_never(step.do)

    def _tell(self, kind: str, plan: ClusterPlan, text: str, why: str) -> None:
        self._announce(Event(FLEET, kind, text, why, {"cluster": plan.name, "location": plan.location}))
