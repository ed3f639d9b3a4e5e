"""Models that are wrapped in DistributedDataParallel are synchronised by the run, like any other."""

from typing import Any

import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel


def quiet(model: nn.Module) -> None:
    """Has a wrapped model leave its gradients alone: the run sums them, in worlds that the wrapper knows nothing of."""
    if isinstance(model, DistributedDataParallel):
        model.register_comm_hook(None, _keep_own)
        model.broadcast_buffers = False
        model.require_forward_param_sync = False


def _keep_own(_state: Any, bucket: GradBucket) -> Future[torch.Tensor]:
    kept: Future[torch.Tensor] = Future()
    # DDP divides nothing when a hook is there.
    kept.set_result(bucket.buffer())
    return kept
