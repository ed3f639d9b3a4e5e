"""Fleet files of one GKE project."""

from pathlib import Path

from controlplane.clouds.gke.fleet_file import GkeFleet
from controlplane.fleet.files import read_fleet


def read_gke_fleet(path: Path) -> GkeFleet:
    fleet = read_fleet(path)
    assert isinstance(fleet, GkeFleet)
    return fleet
