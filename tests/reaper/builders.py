"""Short builders of cloud resources."""

from collections.abc import Sequence

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import ClusterInfo, ClusterStatus, MachineInfo, PoolInfo, PoolRef, PoolStatus
from controlplane.reaper.findings import FleetScope
from controlplane.reaper.ownership_labels import YOUNG_S, lease_of
from messages.ids import ClusterName, JobName
from messages.labels import FLEET_LABEL, JOB_LABEL

NOW = 1_700_000_000.0
OLD = NOW - 2 * YOUNG_S
ZONE = "us-central1-a"
US = ClusterName("us")
EU = ClusterName("eu")
JOB = JobName("mnist")
BUS = "1690000000000"
FLEET = FleetScope("ours", [US])


def labels_of(
    job: str | None = JOB, fleet: str | None = "ours", asked_at: float | None = OLD, bus: str = BUS
) -> dict[str, str]:
    return {
        **({JOB_LABEL: job} if job is not None else {}),
        **({FLEET_LABEL: fleet} if fleet is not None else {}),
        **(lease_of(asked_at, bus) if asked_at is not None else {}),
    }


def a_pool(
    name: str = "a-pool",
    *,
    cluster: ClusterName = US,
    job: str | None = JOB,
    fleet: str | None = "ours",
    asked_at: float | None = OLD,
    bus: str = BUS,
    status: PoolStatus = PoolStatus.RUNNING,
) -> PoolInfo:
    labels = labels_of(job, fleet, asked_at, bus)
    return PoolInfo(PoolRef(cluster, name), MachineKind(ZONE, "g2-standard-8", "L4", 1, True), 2, status, labels)


def a_cluster(
    *pools: PoolInfo,
    name: ClusterName = US,
    fleet: str | None = "ours",
    status: ClusterStatus = ClusterStatus.RUNNING,
    location: str = ZONE,
) -> ClusterInfo:
    system = a_pool("system", cluster=name, job=None, fleet=fleet, asked_at=None)
    ready = status is ClusterStatus.RUNNING
    return ClusterInfo(name, location, ready, labels_of(None, fleet, None), (system, *pools), status=status)


def machines(
    *names: str, job: str = JOB, fleet: str = "ours", zone: str = ZONE, started_at: float = OLD
) -> Sequence[MachineInfo]:
    labels = labels_of(job, fleet)
    return [
        MachineInfo(f"id-{name}", name, MachineKind(zone, "g2-standard-8", "L4", 1, True), started_at, labels)
        for name in names
    ]
