"""The time of a step for every number of nodes at once: the ring of the throughput model, with arrays."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from controlplane.catalog.accelerators import BY_NAME
from controlplane.catalog.links import BYTES_PER_GIB
from controlplane.throughput.communication import BITS_PER_BYTE
from controlplane.throughput.profile import Profile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Paces(Struct, frozen=True):
    """Figures of a step by number of nodes, from 0."""

    samples: Ints
    """Samples of the largest share; 0 if the job cannot run with so many nodes."""
    compute_s: Floats
    over_a_link_bytes: Floats
    inside_s: float
    overlap: float

    def step_s(self, nodes: Ints, slowest_bit_per_s: float) -> Floats:
        compute = self.compute_s[nodes]
        communication = self.inside_s + self.over_a_link_bytes[nodes] * BITS_PER_BYTE / slowest_bit_per_s
        return compute + communication - np.minimum(self.overlap * communication, compute)

    def gib_over_a_link(self, nodes: Ints) -> Floats:
        return self.over_a_link_bytes[nodes] / BYTES_PER_GIB


def paces_of(profile: Profile, accelerator: str, gpus_per_node: int, most: int) -> Paces | None:
    """The paces of an accelerator; None if its speed is not known."""
    kind = profile.compute.get(accelerator)
    if kind is None:
        return None
    nodes = np.arange(most + 1)
    replicas = nodes * gpus_per_node // profile.replica_gpus
    runs = (replicas >= 1) & (replicas <= profile.global_batch)
    samples = np.where(runs, -(-profile.global_batch // np.maximum(replicas, 1)), 0)
    members = np.maximum(np.minimum(replicas, nodes), 1)
    sent = profile.gradient_bytes * min(1.0, gpus_per_node / profile.replica_gpus)
    inside = gpus_per_node // profile.replica_gpus
    over_the_bus = 2 * (inside - 1) / inside * profile.gradient_bytes if inside > 1 else 0.0
    return Paces(
        samples=samples,
        compute_s=samples * kind.seconds_per_sample + kind.seconds_per_step,
        over_a_link_bytes=2 * (members - 1) / members * sent,
        inside_s=over_the_bus * BITS_PER_BYTE / BY_NAME[accelerator].bus_bit_per_s,
        overlap=profile.overlap,
    )
