"""Steps per second and dollars per step of a job on a placement.

A step is the computation of the slowest replica's share of the global batch, then the all-reduce, a part of which may
overlap with the computation. The cost is that of the machines by the hour and of the bytes that leave a zone.
"""

import math
from typing import NamedTuple

from msgspec import Struct

from controlplane.catalog.links import BYTES_PER_GIB, Links
from controlplane.catalog.money import MicroDollars
from controlplane.throughput.communication import Crossings, add_up_inside_s, communicate
from controlplane.throughput.placement import Placement, placement_of
from controlplane.throughput.profile import Profile

SECONDS_PER_HOUR = 3600


class Estimate(Struct, frozen=True, kw_only=True):
    step_s: float
    steps_per_s: float
    compute_s: float
    communication_s: float
    """The whole communication; `step_s` has only the part that does not overlap."""
    replicas: int
    machines_micro_usd_per_hour: MicroDollars
    egress_micro_usd_per_hour: MicroDollars
    egress_bytes_per_step: int
    """Bytes that leave a zone."""
    micro_usd_per_hour: MicroDollars
    micro_usd_per_1000_steps: MicroDollars


class Impossible(NamedTuple):
    why: str


def estimate(profile: Profile, placement: Placement, links: Links) -> Estimate | Impossible:
    replicas = placement.gpus // profile.replica_gpus
    unknown = sorted({group.accelerator for group in placement.groups} - profile.compute.keys())
    if unknown:
        return Impossible(f"the time of a step on {' and '.join(unknown)} is not known")
    if replicas == 0:
        return Impossible(f"a replica needs {profile.replica_gpus} GPUs and there are {placement.gpus}")
    if replicas > profile.global_batch:
        return Impossible(f"{replicas} replicas cannot share a global batch of {profile.global_batch}")
    compute_s = _compute_s(profile, placement, replicas)
    groups = placement_of(placement.groups).groups
    sent = communicate(groups, _sent_bytes(profile, placement), replicas, profile.collective, links)
    communication_s = add_up_inside_s(groups, profile.gradient_bytes, profile.replica_gpus) + sent.seconds
    step_s = compute_s + (communication_s - min(profile.overlap * communication_s, compute_s))
    nano_usd_per_step = _egress_nano_usd(sent.crossings, links)
    machines = placement.micro_usd_per_hour
    egress = _micro(nano_usd_per_step * SECONDS_PER_HOUR / step_s / 1000)
    return Estimate(
        step_s=step_s,
        steps_per_s=1 / step_s,
        compute_s=compute_s,
        communication_s=communication_s,
        replicas=replicas,
        machines_micro_usd_per_hour=machines,
        egress_micro_usd_per_hour=egress,
        egress_bytes_per_step=math.ceil(sum(sent.crossings.values())),
        micro_usd_per_hour=MicroDollars(machines + egress),
        micro_usd_per_1000_steps=_micro(machines * 1000 * step_s / SECONDS_PER_HOUR + nano_usd_per_step),
    )


def _compute_s(profile: Profile, placement: Placement, replicas: int) -> float:
    """The time of the largest share on the slowest accelerator; shares differ by at most one sample."""
    samples = math.ceil(profile.global_batch / replicas)
    kinds = (profile.compute[group.accelerator] for group in placement.groups)
    return max(kind.seconds_per_sample * samples + kind.seconds_per_step for kind in kinds)


def _sent_bytes(profile: Profile, placement: Placement) -> float:
    """Bytes of one machine: a copy of the gradients, or a part of it if a replica spans several machines."""
    largest = max(group.gpus_per_machine for group in placement.groups)
    return profile.gradient_bytes * min(1.0, largest / profile.replica_gpus)


def _egress_nano_usd(crossings: Crossings, links: Links) -> float:
    return sum(
        crossed / BYTES_PER_GIB * links.between(*pair).egress_micro_usd_per_gib * 1000
        for pair, crossed in crossings.items()
    )


def _micro(amount: float) -> MicroDollars:
    """The amount rounded up, so that estimates of money are not too low."""
    return MicroDollars(math.ceil(amount))
