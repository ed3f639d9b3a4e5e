"""What the fleet file says, in the terms of clouds and allocators."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controlplane.allocator.offers import Offer
from controlplane.clouds.interface import JOB_LABEL, ClusterPlan, PoolPlan, Taint


@dataclass(frozen=True, slots=True)
class PoolDefaults:
    """What every pool of the fleet has and no allocator cares about."""

    disk_gb: int = 100
    disk_type: str = "pd-balanced"
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    driver: str = "default"
    workload_identity: bool = True
    shutdown_grace_s: int = 30
    service_account: str | None = None


@dataclass(frozen=True, slots=True)
class FleetPlan:
    clusters: tuple[ClusterPlan, ...]
    regions: Mapping[str, str]
    """The region of each cluster, by its name."""
    offers: tuple[Offer, ...]
    pools: PoolDefaults = PoolDefaults()


def completed(plan: PoolPlan, defaults: PoolDefaults) -> PoolPlan:
    """With what the fleet adds, and a taint that keeps the pods of other jobs away."""
    job = plan.labels.get(JOB_LABEL, "")
    return replace(
        plan,
        disk_gb=defaults.disk_gb,
        disk_type=defaults.disk_type,
        labels={**defaults.labels, **plan.labels},
        taints=(*plan.taints, Taint(JOB_LABEL, job, "NoSchedule")),
        tags=defaults.tags,
        driver=defaults.driver,
        workload_identity=defaults.workload_identity,
        shutdown_grace_s=defaults.shutdown_grace_s,
        service_account=defaults.service_account,
    )
