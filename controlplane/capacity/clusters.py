"""The fleet's clusters while a master leads: they are created or taken over, set up, and protected from upgrades."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.bootstrap.bootstrap import Bootstrap
from controlplane.bootstrap.outcomes import PassOutcome
from controlplane.bootstrap.settings import BootstrapSettings, Place, Secrets
from controlplane.capacity.capacity import Capacity
from controlplane.capacity.fleet_keeper import Controllers, FleetKeeper
from controlplane.capacity.interface import LastHeard
from controlplane.capacity.silent_controllers import SilentControllers
from controlplane.capacity.upgrade_guard import UpgradeGuard
from controlplane.clouds.interface import Cloud, ClusterPlan
from controlplane.clouds.outcomes import reason_of
from messages.events import FLEET, Event
from messages.ids import ClusterName
from runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class ClusterTerms:
    """The fleet file's settings for clusters, and the secrets that are installed in them."""

    plans: Sequence[ClusterPlan]
    places: Sequence[Place]
    settings: BootstrapSettings
    secrets: Secrets


class Clusters:
    def __init__(
        self,
        cloud: Cloud,
        fleet: ClusterTerms,
        capacity: Capacity,
        heard_s: LastHeard,
        announce: Callable[[Event], None],
        clock: Clock,
    ) -> None:
        self._announce = announce
        self._places = {place.cluster: place for place in fleet.places}
        self._bootstrap = bootstrap = Bootstrap(cloud, fleet.settings, fleet.secrets, self._report)
        silent = SilentControllers(
            bootstrap.controller_failure, capacity.block, announce, heard_s, capacity.pull_hint, clock
        )
        controllers = Controllers(heard_s, capacity.hear_of_cluster, silent.wait_while_failing)
        self._keeper = FleetKeeper(cloud, fleet.plans, self._install, announce, controllers, clock)
        self._upgrades = UpgradeGuard(cloud, fleet.plans, announce, clock)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keeper.run(), name="fleet")
            tasks.create_task(self._upgrades.run(), name="upgrades")

    async def _install(self, cluster: ClusterName) -> None:
        await self._bootstrap.install_until_done(self._places[cluster])

    def _report(self, place: Place, outcome: PassOutcome) -> None:
        event = event_of(place, outcome)
        if event is not None:
            self._announce(event)


def event_of(place: Place, outcome: PassOutcome) -> Event | None:
    """The event that a cluster is not set up; None if it is, because the fleet keeper announces ready clusters."""
    why = reason_of(outcome)
    if not why:
        return None
    return Event(FLEET, "cluster_waits", f"cluster {place.cluster} is not set up yet", why, {"cluster": place.cluster})
