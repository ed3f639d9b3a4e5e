"""The vCPUs of Google's machine types, read from their names."""

import pytest

from controlplane.catalog.machine_types import vcpus_of
from controlplane.catalog.shipped import shipped_catalog
from simulator.cloud.model.machines import machine


@pytest.mark.parametrize(
    ("machine_type", "vcpus"),
    [
        ("e2-medium", 2),
        ("f1-micro", 1),
        ("n1-standard-8", 8),
        ("n2-highmem-4", 4),
        ("m1-ultramem-40", 40),
        ("c3-standard-8-lssd", 8),
        ("custom-6-20480", 6),
        ("n2-custom-8-32768", 8),
        ("n2-custom-8-32768-ext", 8),
        ("a2-highgpu-2g", 24),
        ("a3-highgpu-8g", 208),
        ("a3-megagpu-8g", None),
        ("standard", None),
        ("", None),
    ],
)
def test_a_name_gives_the_vcpus(machine_type: str, vcpus: int | None) -> None:
    assert vcpus_of(machine_type) == vcpus


def test_names_agree_with_the_catalog_and_with_the_simulated_cloud() -> None:
    offers = {offer.machine_type: offer.vcpus for offer in shipped_catalog().offers}
    assert len(offers) > 10
    for name, vcpus in offers.items():
        assert vcpus_of(name) in (vcpus, None), name
        simulated = machine(name)
        assert simulated is None or simulated.vcpus == vcpus, name
