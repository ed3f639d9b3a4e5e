"""What a node needs of Compute's quotas, and how Google's refusals are read."""

from typing import Any

import pytest

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.gke.compute import read_quota
from controlplane.clouds.gke.quotas import exceeded, needs, too_small, with_page
from controlplane.clouds.gke.settings import GkeConfig, NodeConfig
from controlplane.clouds.interface import PROJECT, PoolPlan, Quota, QuotaKey
from controlplane.clouds.outcomes import QuotaExceeded, Shortfall

REGION = "us-central1"
SEVERAL = """
	(1) insufficient regional quota to satisfy request: resource "CPUS": request requires '72.0' and is short '48.0'. \
project has a quota of '24.0' with '24.0' available. View and manage quotas at https://console.cloud.google.com/x
	(2) insufficient project quota to satisfy request: resource "GPUS_ALL_REGIONS": request requires '9.0' and \
is short '8.0'. project has a quota of '1.0' with '1.0' available. View and manage quotas at https://console.cloud.google.com/x"""


def limits(**metrics: float) -> list[Quota]:
    scopes = {metric: PROJECT if metric.endswith("_ALL_REGIONS") else REGION for metric in metrics}
    return [Quota(QuotaKey(scopes[metric], metric), limit, 0.0) for metric, limit in metrics.items()]


def taken(
    quotas: list[Quota], machine_type: str = "g2-standard-8", *, gpus: int = 1, spot: bool = True, **changes: Any
) -> dict[str, int]:
    kind = MachineKind(f"{REGION}-a", machine_type, "L4" if gpus else "", gpus, spot)
    plan, config = PoolPlan(name="p", kind=kind, size=3), GkeConfig(nodes=NodeConfig(**changes))
    return {key.metric: amount for key, amount in needs(plan, quotas, config).items()}


def test_a_spot_node_takes_spot_quotas_only_where_some_were_granted() -> None:
    ordinary = limits(CPUS=24, NVIDIA_L4_GPUS=1, PREEMPTIBLE_CPUS=0, PREEMPTIBLE_NVIDIA_L4_GPUS=0)
    assert taken(ordinary) == {"CPUS": 8, "NVIDIA_L4_GPUS": 1}
    granted = limits(CPUS=24, NVIDIA_L4_GPUS=1, PREEMPTIBLE_CPUS=64, PREEMPTIBLE_NVIDIA_L4_GPUS=8)
    assert taken(granted) == {"PREEMPTIBLE_CPUS": 8, "PREEMPTIBLE_NVIDIA_L4_GPUS": 1}
    assert taken(granted, spot=False) == {"CPUS": 8, "NVIDIA_L4_GPUS": 1}


@pytest.mark.parametrize(
    ("disk_type", "metric"),
    [("pd-balanced", "SSD_TOTAL_GB"), ("pd-ssd", "SSD_TOTAL_GB"), ("pd-standard", "DISKS_TOTAL_GB")],
)
def test_a_disk_counts_by_its_type(disk_type: str, metric: str) -> None:
    assert taken(limits(SSD_TOTAL_GB=500, DISKS_TOTAL_GB=4096), disk_gb=70, disk_type=disk_type) == {metric: 70}


@pytest.mark.parametrize(
    ("machine_type", "metric", "vcpus"),
    [
        ("e2-medium", "CPUS", 2),
        ("n1-standard-8", "CPUS", 8),
        ("n1-custom-6-20480", "CPUS", 6),
        ("n2-highmem-4", "N2_CPUS", 4),
        ("a2-highgpu-2g", "A2_CPUS", 24),
        ("a3-megagpu-8g", "", 0),
    ],
)
def test_vcpus_count_by_the_series_of_the_machine(machine_type: str, metric: str, vcpus: int) -> None:
    found = taken(limits(CPUS=24, N2_CPUS=24, A2_CPUS=24), machine_type, gpus=0)
    assert found == ({metric: vcpus} if metric else {})


def test_every_node_takes_its_part_of_what_all_regions_share() -> None:
    quotas = limits(CPUS_ALL_REGIONS=32, GPUS_ALL_REGIONS=2, INSTANCES=24, IN_USE_ADDRESSES=8)
    found = taken(quotas, "g2-standard-24", gpus=2)
    assert found == {"CPUS_ALL_REGIONS": 24, "GPUS_ALL_REGIONS": 2, "INSTANCES": 1, "IN_USE_ADDRESSES": 1}


def test_every_quota_that_a_refusal_names_is_read() -> None:
    outcome = exceeded("p", " ".join(SEVERAL.split()))
    cpus, gpus = Shortfall("CPUS", True, 72.0, 24.0), Shortfall("GPUS_ALL_REGIONS", False, 9.0, 1.0)
    assert outcome.shortfalls == (cpus, gpus)
    assert too_small(gpus, limit=1.0) in outcome.detail
    assert outcome.detail.endswith("https://console.cloud.google.com/iam-admin/quotas?project=p")


def test_a_refusal_in_other_words_is_told_as_it_is() -> None:
    text = "Insufficient regional quota, says a text of next year"
    assert exceeded("p", text) == QuotaExceeded(with_page(text, "p"))


@pytest.mark.parametrize("amount", ["1.2.3", ".", "9" * 400])
def test_a_refusal_with_amounts_that_are_no_numbers_is_told_as_it_is(amount: str) -> None:
    outcome = exceeded("p", SEVERAL.replace("72.0", amount).replace("9.0", amount))
    assert outcome.shortfalls == ()


@pytest.mark.parametrize(
    ("limit", "usage", "read"),
    [
        (float("nan"), 0, None),
        (5, float("nan"), None),
        (-1, 0, None),
        (None, 0, None),
        ("5", 0, None),
        (5, -3, (5, 0)),
        (float("inf"), 0, (2**53, 0)),
        (10**400, 10**400, (2**53, 2**53)),
    ],
)
def test_a_quota_that_is_no_amount_limits_nothing(limit: object, usage: object, read: tuple[int, int] | None) -> None:
    reported = read_quota(REGION, {"metric": "CPUS", "limit": limit, "usage": usage})
    assert ((reported.limit, reported.usage) if reported is not None else None) == read
