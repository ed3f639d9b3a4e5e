"""The upkeep of the fleet's clusters: each is created or taken over, then set up. No recovery waits for it.

A cluster whose controller falls silent is set up again: it may be another cluster with the same name, or may have
lost what was installed in it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

from controlplane.capacity.interface import LastHeard
from controlplane.capacity.upkeep_policy import SILENCE_FIRST_S, Watch, next_step
from controlplane.clouds.interface import Cloud, ClusterPlan
from controlplane.clouds.outcomes import Done, Outcome, Refused, Unreachable, reason_of
from messages.events import FLEET, Event
from messages.ids import ClusterName
from runtime.backoff import pauses
from runtime.clock import Clock
from runtime.logs import logger

PAUSE_FIRST_S = 1.0
PAUSE_MOST_S = 60.0


class Installs(Protocol):
    """A function that installs what a cluster needs and returns when that is done."""

    async def __call__(self, cluster: ClusterName) -> None: ...


@dataclass(frozen=True, slots=True)
class Controllers:
    """What the fleet keeper knows of controllers, and whom it informs about clusters."""

    heard_s: LastHeard
    report_wait: Callable[[ClusterName, str], None]
    """Reports the reason why a cluster is not ready; empty if it is."""
    outwait: Callable[[ClusterName], Awaitable[None]] | None = None
    """Waits while a silent controller fails for a known reason."""


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
        """Run until cancelled. Clusters are independent, so that a cluster that cannot be created blocks no other."""
        async with asyncio.TaskGroup() as tasks:
            for plan in self._clusters:
                tasks.create_task(self._keep(plan), name=f"fleet/{plan.name}")

    async def _keep(self, plan: ClusterPlan) -> None:
        await self._make_ready(plan)
        self._tell("cluster_ready", plan, f"cluster {plan.name} in {plan.location} is ready", "created or taken over")
        watch = Watch(self._clock.monotonic_s(), self._silence_s)
        while True:
            heard_s = await self._until_silent(plan.name, watch)
            if watch.was_heard(heard_s):
                why = "it may have lost its installation, so it is set up again"
                self._tell("cluster_silent", plan, f"the controller of cluster {plan.name} is silent", why)
            await self._make_ready(plan)
            if self._controllers.outwait is not None:
                await self._controllers.outwait(plan.name)
            watch = watch.again(heard_s, self._clock.monotonic_s(), self._silence_s)

    async def _until_silent(self, cluster: ClusterName, watch: Watch) -> float | None:
        """Wait until the controller is silent, and return when it was last heard."""
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
        """Take the next step for a cluster, and return why the cluster is not ready; None if it is."""
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
                return creation_failed(step.why, outcome)
            case _:
                assert_never(step.do)

    def _tell(self, kind: str, plan: ClusterPlan, text: str, why: str) -> None:
        self._announce(Event(FLEET, kind, text, why, {"cluster": plan.name, "location": plan.location}))


def creation_failed(why: str, removal: Outcome) -> str:
    """The reason why a cluster whose creation failed is not ready; `removal` is the outcome of its removal."""
    if not isinstance(removal, Done):
        return f"its creation failed, and its removal failed, too: {reason_of(removal)}"
    return f"its creation failed, so it is removed and created again: {why}"
