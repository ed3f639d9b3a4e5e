"""The protection of the fleet's clusters from node upgrades. Rules: `upgrade_policy`."""

import asyncio
from collections.abc import Callable, Sequence

from controlplane.capacity.upgrade_policy import LOOK_S, Protect, first_step, next_step
from controlplane.clouds.interface import Cloud, ClusterInfo, ClusterPlan
from controlplane.clouds.outcomes import Refused, Unreachable, reason_of
from messages.events import Event
from messages.ids import ClusterName
from runtime.backoff import pauses
from runtime.clock import Clock
from runtime.logs import logger

PAUSE_FIRST_S = 5.0
PAUSE_MOST_S = 600.0


class UpgradeGuard:
    def __init__(
        self, cloud: Cloud, clusters: Sequence[ClusterPlan], announce: Callable[[Event], None], clock: Clock
    ) -> None:
        self._cloud = cloud
        self._plans = clusters
        self._announce = announce
        self._clock = clock
        self._announced: dict[ClusterName, Event] = {}
        """The last event of each cluster."""
        self._log = logger()

    async def run(self) -> None:
        """Run until cancelled."""
        waits = pauses(PAUSE_FIRST_S, PAUSE_MOST_S)
        while True:
            if await self.look():
                waits = pauses(PAUSE_FIRST_S, PAUSE_MOST_S)
                await asyncio.sleep(LOOK_S)
            else:
                await asyncio.sleep(next(waits))

    async def look(self) -> bool:
        """Renew protections that end soon, and return whether every cluster is protected."""
        listed = await self._cloud.clusters()
        if isinstance(listed, Unreachable | Refused):
            self._log.warning("upgrades_unknown", why=reason_of(listed))
            return False
        known = {cluster.name: cluster for cluster in listed}
        return all([await self._protect(plan, known.get(plan.name)) for plan in self._plans])

    async def _protect(self, plan: ClusterPlan, cluster: ClusterInfo | None) -> bool:
        step = first_step(plan, cluster, self._clock.wall_s())
        while isinstance(step, Protect):
            step = next_step(step, await self._cloud.protect_from_upgrades(plan.name, step.until))
        if step.event is not None and step.event != self._announced.get(plan.name):
            self._announced[plan.name] = step.event
            self._announce(step.event)
        return step.is_protected
