"""Where machines may be had, most wanted first, and what a pool of them is called."""

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache

from controlplane.catalog.accelerators import canonical
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import PoolPlan, PoolRef
from messages.ids import ClusterName, JobName
from messages.labels import JOB_LABEL, POOL_LABEL

NAMED_AT_MOST = 22
"""Of a job's name; with the rest a pool's name stays within the 40 characters that GKE allows."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Nodes of one kind in one zone of one cluster."""

    cluster: ClusterName
    zone: str
    machine_type: str
    max_nodes: int
    accelerator: str | None = None
    """As the fleet file calls it."""
    accelerators_per_node: int = 0
    spot: bool = True
    pool: str | None = None
    """Of a pool that was found and that no offer of the fleet would make; otherwise the name follows from the rest."""
    kind: MachineKind = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        accelerator, count = canonical(self.accelerator), self.accelerators_per_node
        object.__setattr__(self, "kind", MachineKind(self.zone, self.machine_type, accelerator, count, self.spot))


@lru_cache(maxsize=4096)
def pool_ref(job: JobName, offer: Offer) -> PoolRef:
    """The same whenever it is asked for: a pool that is created twice is created once."""
    if offer.pool is not None:
        return PoolRef(offer.cluster, offer.pool)
    kind = (offer.zone, offer.machine_type, offer.accelerator, offer.spot, offer.accelerators_per_node)
    what = (job, offer.cluster, *kind)
    digest = hashlib.sha256("|".join(map(str, what)).encode()).hexdigest()[:8]
    return PoolRef(offer.cluster, f"tw-{job[:NAMED_AT_MOST].strip('-')}-{digest}")


def pool_plan(job: JobName, offer: Offer, size: int) -> PoolPlan:
    """What the allocator decides; the shell adds the fleet's labels and taints, the provider disks and the like."""
    name = pool_ref(job, offer).pool
    return PoolPlan(
        name=name,
        kind=offer.kind,
        size=size,
        labels={JOB_LABEL: job, POOL_LABEL: name},
    )
