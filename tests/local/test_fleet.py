"""The fleet of the demonstration: the example file with the addresses of the stack's simulator."""

from pathlib import Path

from tests.clouds.gke_fleets import read_gke_fleet
from tradewind.demo import FLEET
from tradewind.local.fleet import decode_fleet, fleet_at, home, region


def test_the_master_reads_it_as_the_example_with_other_addresses_and_room_for_all_workers(tmp_path: Path) -> None:
    written = tmp_path / "fleet.yaml"
    written.write_bytes(fleet_at(FLEET.read_text(), 4100, 4101, workers=6))
    (tmp_path / "simulator-key.json").write_text("{}")
    fleet = read_gke_fleet(written)
    assert (fleet.cloud.endpoints.gke, fleet.cloud.endpoints.insecure) == ("127.0.0.1:4100", True)
    assert fleet.cloud.endpoints.compute == "http://127.0.0.1:4101/compute/v1"
    assert {offer.max_nodes for offer in fleet.offers} == {6}
    assert [cluster.name for cluster in fleet.clusters] == ["sim-us", "sim-eu"]


def test_two_regions_are_known_by_their_clusters() -> None:
    fleet = decode_fleet(fleet_at(FLEET.read_text(), 4100, 4101, workers=4))
    assert home(fleet).zones == ("us-central1-a", "us-central1-b")
    regions = {cluster.name: region(cluster) for cluster in fleet.clusters}
    assert regions == {"sim-us": "us-central1", "sim-eu": "europe-west4"}
