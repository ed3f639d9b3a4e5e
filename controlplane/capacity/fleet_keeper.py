"""Keeps the fleet's clusters ready: creates each or takes it over, then sets it up. No job's recovery waits for this.

When a controller falls silent, its cluster is made ready again: the cluster may be gone, may have been replaced by
another of the same name, or may have lost what was installed in it.
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
    """Functions by which the fleet keeper watches controllers and reports on clusters."""

    heard_s: LastHeard
    report_wait: Callable[[ClusterName, str], None]
    """Reports the reason why a cluster is not ready; empty if it is."""
    wait_while_failing: Callable[[ClusterName], Awaitable[None]]
    """Waits until a silent controller is heard or no reason for its failure is known."""


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
        self._report_ready(plan, f"cluster {plan.name} was created or taken over, then set up")
        watch = Watch(self._clock.monotonic_s(), self._silence_s)
        while True:
            was_lost = watch.was_heard(await self._until_silent(plan.name, watch))
            if was_lost:
                why = f"cluster {plan.name} may have lost what was installed in it, so it is set up again"
                self._report("cluster_silent", plan, f"the controller of cluster {plan.name} is silent", why)
            waited = await self._make_ready(plan)
            await self._controllers.wait_while_failing(plan.name)
            if was_lost or waited:
                self._report_ready(plan, f"cluster {plan.name} was set up again, because its controller was silent")
            watch = watch.again(self._controllers.heard_s(plan.name), self._clock.monotonic_s(), self._silence_s)

    async def _until_silent(self, cluster: ClusterName, watch: Watch) -> float | None:
        """Wait until the controller is silent. Return the monotonic time when it was last heard, None if never."""
        while True:
            heard_s = self._controllers.heard_s(cluster)
            left_s = watch.silent_at_s(heard_s) - self._clock.monotonic_s()
            if left_s <= 0:
                return heard_s
            await asyncio.sleep(left_s)

    async def _make_ready(self, plan: ClusterPlan) -> bool:
        """Create the cluster unless it exists, and install in it. Return whether a wait was announced."""
        before = ""
        for pause_s in pauses(PAUSE_FIRST_S, PAUSE_MOST_S):
            waits = await self._make(plan)
            if waits is None:
                break
            if waits != before:
                self._controllers.report_wait(plan.name, waits)
                self._log.warning("cluster_not_ready", cluster=plan.name, why=waits)
                self._report("cluster_waits", plan, f"cluster {plan.name} is not ready", waits)
                before = waits
            await asyncio.sleep(pause_s)
        self._controllers.report_wait(plan.name, "")
        await self._install(plan.name)
        return bool(before)

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

    def _report_ready(self, plan: ClusterPlan, why: str) -> None:
        self._report("cluster_ready", plan, f"cluster {plan.name} in {plan.location} is ready", why)

    def _report(self, kind: str, plan: ClusterPlan, text: str, why: str) -> None:
        self._announce(Event(FLEET, kind, text, why, {"cluster": plan.name, "location": plan.location}))


def creation_failed(why: str, removal: Outcome) -> str:
    """The reason why a cluster whose creation failed is not ready; `removal` is the outcome of its removal."""
    failed = f"its creation failed ({why})" if why else "its creation failed"
    if not isinstance(removal, Done):
        return f"{failed}; its removal failed, too: {reason_of(removal)}"
    return f"{failed}, so it is removed and created again"
