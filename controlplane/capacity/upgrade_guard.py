"""Keeps the cloud from upgrading the nodes of the fleet's clusters: each protection is renewed long before it ends.

A cloud may refuse a protection that is too long, since it ends with the support of a cluster's version at the latest:
then a shorter one is requested. If the cloud refuses all, an event says so; an upgrade costs ranks, but breaks nothing.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from controlplane.clouds.interface import Cloud, ClusterInfo, ClusterPlan
from controlplane.clouds.outcomes import Done, Outcome, Refused, Unreachable, reason_of
from messages.events import FLEET, Event
from messages.ids import ClusterName
from runtime.backoff import pauses
from runtime.clock import Clock
from runtime.logs import logger

LOOK_S = 3600.0
"""Between two looks while everything is protected."""
PAUSE_FIRST_S = 5.0
PAUSE_MOST_S = 600.0
RENEWED_SHARE = 1 / 3
"""Part of the wanted time that is left when a protection is renewed."""
SHORTEST_S = 14 * 86_400.0


class UpgradeGuard:
    def __init__(
        self, cloud: Cloud, clusters: Sequence[ClusterPlan], announce: Callable[[Event], None], clock: Clock
    ) -> None:
        self._cloud = cloud
        self._plans = clusters
        self._announce = announce
        self._clock = clock
        self._told: dict[ClusterName, str] = {}
        self._log = logger()

    async def run(self) -> None:
        """Until cancelled."""
        waits = pauses(PAUSE_FIRST_S, PAUSE_MOST_S)
        while True:
            if await self.look():
                waits = pauses(PAUSE_FIRST_S, PAUSE_MOST_S)
                await asyncio.sleep(LOOK_S)
            else:
                await asyncio.sleep(next(waits))

    async def look(self) -> bool:
        """Renews what ends soon. Whether every cluster is protected."""
        listed = await self._cloud.clusters()
        if isinstance(listed, Unreachable | Refused):
            self._log.warning("upgrades_unknown", why=reason_of(listed))
            return False
        known = {cluster.name: cluster for cluster in listed if cluster.ready}
        return all([plan.name in known and await self._protect(plan, known[plan.name]) for plan in self._plans])

    async def _protect(self, plan: ClusterPlan, cluster: ClusterInfo) -> bool:
        now = self._clock.wall_s()
        until = cluster.protected_until or now
        if until - now >= plan.protect_s * RENEWED_SHARE:
            return True
        outcome: Outcome = Done()
        for length_s in _lengths_s(plan.protect_s):
            if now + length_s <= until:
                break
            outcome = await self._cloud.protect_from_upgrades(plan.name, now + length_s)
            if isinstance(outcome, Done):
                text = f"cluster {plan.name}: no node upgrades until {_day(now + length_s)}"
                self._tell(plan, "upgrades_excluded", text)
                return True
            if not isinstance(outcome, Refused):
                break
        until_when = f"are only excluded until {_day(until)}" if until > now else "may come at any time"
        why = f"the cloud did not exclude them: {reason_of(outcome)}"
        self._tell(plan, "upgrades_allowed", f"cluster {plan.name}: node upgrades {until_when}", why)
        return until > now + 2 * LOOK_S

    def _tell(self, plan: ClusterPlan, kind: str, text: str, why: str = "") -> None:
        if self._told.get(plan.name) != text + why:
            self._told[plan.name] = text + why
            self._announce(Event(FLEET, kind, text, why, {"cluster": plan.name}))


def _lengths_s(wanted_s: float) -> Iterator[float]:
    while wanted_s >= SHORTEST_S:
        yield wanted_s
        wanted_s /= 2


def _day(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).date().isoformat()
