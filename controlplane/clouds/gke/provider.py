"""Google Kubernetes Engine as a provider. It imports Google's libraries when a cloud is opened."""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import structs

from controlplane.catalog.refresh import Prices
from controlplane.clouds.gke import node_accounts
from controlplane.clouds.gke.cloud import GkeCloud, load_client
from controlplane.clouds.gke.fleet_file import GOOGLE, GkeFleet, gke_config, gke_settings, problems
from controlplane.clouds.gke.price_api import known_prices
from controlplane.clouds.interface import Cloud, MachineInfo
from controlplane.clouds.providers import Environ, Problem
from runtime.paths import placed


class GkeProvider:
    fleet_type = GkeFleet

    def problems(self, fleet: GkeFleet) -> Sequence[Problem]:
        return problems(fleet)

    def placed(self, fleet: GkeFleet, folder: Path) -> GkeFleet:
        credentials = fleet.cloud.credentials
        if credentials is None:
            return fleet
        found = placed(credentials, folder, "cloud.credentials")
        return structs.replace(fleet, cloud=structs.replace(fleet.cloud, credentials=str(found)))

    def load(self) -> None:
        load_client()

    async def open(self, fleet: GkeFleet, environ: Environ) -> Cloud:
        return await GkeCloud.open(gke_settings(fleet, environ), gke_config(fleet))

    def prices(self, fleet: GkeFleet, environ: Environ, cloud: Cloud) -> Prices:
        # The token of a stand-in is useless at Google and must not be sent there.
        is_google = gke_settings(fleet, environ).endpoint == GOOGLE.endpoint
        account = cloud.api_headers if is_google and isinstance(cloud, GkeCloud) else None
        return known_prices(environ, account)

    def pull_hint(self, fleet: GkeFleet, environ: Environ) -> Callable[[str], str]:
        project, account = gke_settings(fleet, environ).project, fleet.nodes.service_account
        return lambda image: node_accounts.pull_hint(image, project, account)

    def removal_command(self, fleet: GkeFleet, environ: Environ, machine: MachineInfo) -> str:
        project = gke_settings(fleet, environ).project
        return f"gcloud compute instances delete {machine.name} --zone={machine.kind.zone} --project={project}"


PROVIDER = GkeProvider()
