"""Models that are wrapped in DistributedDataParallel are synchronised by the run, like any other."""

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def quiet(model: nn.Module) -> None:
    """Has wrappers do no collective any more: the run sums the gradients, in worlds that they know nothing of.

    One that is left would wait in the group of the first world for ranks that are gone or have nothing to compute.
    """
    for each in model.modules():
        if isinstance(each, DistributedDataParallel):
            _quiet(each)


def _quiet(wrapper: DistributedDataParallel) -> None:
    if wrapper._delay_all_reduce_params:
        raise ValueError("DistributedDataParallel with delay_all_reduce_named_params sums gradients by itself")
    # What steps before the run have left to do is done now, while all who took them are here.
    wrapper.reducer._rebuild_buckets()
    wrapper.require_backward_grad_sync = False  # as inside no_sync(), for good
    wrapper.require_forward_param_sync = False
    wrapper.broadcast_buffers = False
    if wrapper.static_graph:
        # Its first backward asks for one sum even so, unless that was asked for already.
        wrapper._static_graph_delay_allreduce_enqueued = True
