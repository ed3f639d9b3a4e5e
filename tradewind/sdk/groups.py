"""Which library carries the sums: gloo for CPUs, NCCL for GPUs."""

from functools import partial

import torch

from tradewind.sdk import gloo
from tradewind.sdk.builder import MakeGroup


def group_maker(device: torch.device) -> MakeGroup:
    if device.type == "cuda":
        from tradewind.sdk.nccl import build

        return partial(build, device)
    return gloo.build
