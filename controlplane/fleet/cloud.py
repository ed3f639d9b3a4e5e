"""The cloud that a fleet is in."""

from collections.abc import Callable, Mapping
from typing import assert_never

from controlplane.clouds.gke import node_accounts
from controlplane.clouds.gke.cloud import GkeCloud, load_client
from controlplane.clouds.interface import Cloud
from controlplane.fleet.plans import gke_settings
from controlplane.fleet.spec import Fleet


def load_clients() -> None:
    """Of any cloud that a fleet can be in, ahead of its use."""
    load_client()


async def open_cloud(fleet: Fleet, environ: Mapping[str, str]) -> Cloud:
    """Raises `UserError` for settings that cannot be used. Asks nobody for anything yet."""
    match fleet.cloud.kind:
        case "gke":
            return await GkeCloud.open(gke_settings(fleet, environ))
        case other:
            assert_never(other)


def pull_hint(fleet: Fleet, environ: Mapping[str, str]) -> Callable[[str], str]:
    """How to let the fleet's nodes pull an image; empty where its registry is not the cloud's."""
    match fleet.cloud.kind:
        case "gke":
            project, account = gke_settings(fleet, environ).project, fleet.nodes.service_account
            return lambda image: node_accounts.pull_hint(image, project, account)
        case other:
            assert_never(other)
