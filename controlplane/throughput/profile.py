"""What a job needs for a step, measured live or given."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(ge=0, le=1e7)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Collective(StrEnum):
    RING = "ring"
    """One ring through all machines, neighbours in rank being neighbours on the network: what trainers do today."""
    HIERARCHICAL = "hierarchical"
    """Reduced inside each region, then in a ring of one machine for each region, then spread inside again."""


class Compute(Struct, frozen=True):
    """Of one replica on one accelerator: a straight line."""

    seconds_per_sample: Annotated[float, Meta(gt=0, le=1e7)]
    seconds_per_step: Seconds = 0.0
    """What does not depend on the samples, such as the optimizer's update."""


class Profile(Struct, frozen=True, kw_only=True):
    compute: Mapping[str, Compute]
    """By accelerator."""
    gradient_bytes: Annotated[int, Meta(ge=0)]
    """Of one copy of the model, that all replicas add up in each step."""
    global_batch: Annotated[int, Meta(ge=1)]
    replica_gpus: Annotated[int, Meta(ge=1)] = 1
    """The ranks that together hold one copy: the degree of tensor parallelism."""
    overlap: Share = 0.0
    """The part of the communication that can hide behind the computation; 0 is a step that computes, then sends."""
    collective: Collective = Collective.RING
    is_assumed: bool = False
    """Then it tells places apart, and what it says of steps and of money for them means nothing."""
