"""The profile of a job's steps: measured, given in its file, or assumed."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(ge=0, le=1e7)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Collective(StrEnum):
    RING = "ring"
    """One ring through all machines in the order of ranks: what trainers use today."""
    HIERARCHICAL = "hierarchical"
    """Reduce inside each region, then in a ring of one machine per region, then broadcast inside each region."""


class Compute(Struct, frozen=True):
    """The compute time of one replica on one accelerator: linear in the samples."""

    seconds_per_sample: Annotated[float, Meta(gt=0, le=1e7)]
    seconds_per_step: Seconds = 0.0
    """The part that does not depend on the samples, such as the optimizer's update."""


class Profile(Struct, frozen=True, kw_only=True):
    compute: Mapping[str, Compute]
    """By accelerator."""
    gradient_bytes: Annotated[int, Meta(ge=0)]
    """Bytes of the gradients of one copy of the model, which all replicas all-reduce in each step."""
    global_batch: Annotated[int, Meta(ge=1)]
    replica_gpus: Annotated[int, Meta(ge=1)] = 1
    """Ranks that hold one copy of the model together: the degree of tensor parallelism."""
    overlap: Share = 0.0
    """The share of the communication that can overlap with the computation; 0: a step computes, then sends."""
    collective: Collective = Collective.RING
    is_assumed: bool = False
    """The profile only serves to compare placements; its times and costs of steps mean nothing."""
