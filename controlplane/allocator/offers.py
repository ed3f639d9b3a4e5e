"""Where machines are offered, most wanted first, and the names of their pools."""

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache

from controlplane.catalog.accelerators import canonical
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import PoolPlan, PoolRef
from messages.ids import ClusterName, JobName
from messages.labels import JOB_LABEL, POOL_LABEL

NAMED_AT_MOST = 22
"""Characters of a job's name in a pool's name, which GKE limits to 40 characters."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Nodes of one kind in one zone of one cluster."""

    cluster: ClusterName
    zone: str
    machine_type: str
    max_nodes: int
    accelerator: str | None = None
    """The name in the fleet file."""
    accelerators_per_node: int = 0
    spot: bool = True
    pool: str | None = None
    """Name of a pool that was found and matches no offer of the fleet; otherwise the name is derived."""
    kind: MachineKind = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        accelerator, count = canonical(self.accelerator), self.accelerators_per_node
        object.__setattr__(self, "kind", MachineKind(self.zone, self.machine_type, accelerator, count, self.spot))


@lru_cache(maxsize=4096)
def pool_ref(job: JobName, offer: Offer) -> PoolRef:
    """The pool's reference, always the same for a job and an offer: a second request creates no second pool."""
    if offer.pool is not None:
        return PoolRef(offer.cluster, offer.pool)
    kind = (offer.zone, offer.machine_type, offer.accelerator, offer.spot, offer.accelerators_per_node)
    what = (job, offer.cluster, *kind)
    digest = hashlib.sha256("|".join(map(str, what)).encode()).hexdigest()[:8]
    return PoolRef(offer.cluster, f"tw-{job[:NAMED_AT_MOST].strip('-')}-{digest}")


def pool_plan(job: JobName, offer: Offer, size: int) -> PoolPlan:
    """The part of a pool's plan that the allocator decides; the shell and the provider add the rest."""
    name = pool_ref(job, offer).pool
    return PoolPlan(
        name=name,
        kind=offer.kind,
        size=size,
        labels={JOB_LABEL: job, POOL_LABEL: name},
    )
