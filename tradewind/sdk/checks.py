"""Checks of a script's arguments to a run, before the first step.

- Optimizers, schedulers and layers that a run cannot use, or should not: an error or a warning tells what to do.
- DistributedDataParallel: its collectives are disabled, since the run has its own.
- Terms: properties that must be the same on all ranks of a run, as text, with digests of long ones. Files change while
  a job trains. A worker that joins with another model would break the all-reduce of the others, and with another order
  of samples it would train on wrong ones: it is refused before it enters a world.
"""

import hashlib
import json
import math
from collections.abc import MutableMapping
from typing import Final

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from tradewind.protocol.variables import TERMS
from tradewind.sdk.data.order import Order
from tradewind.sdk.errors import ScriptMismatch
from tradewind.sdk.training_state.training_state import TrainingState

_NAMED_AT_MOST: Final = 3


def terms_of(state: TrainingState, order: Order, steps: int, **options: object) -> str:
    """The terms of a run. `options` are the other settings that decide how gradients become the next state."""
    kind = state.kind()
    tensors = [*kind.fixed, *kind.buffers]
    numbers = sum(math.prod(each.shape) for each in tensors)
    layout = _digest([(each.name, each.shape, each.dtype) for each in tensors], sorted(kind.extra))
    terms: dict[str, object] = {
        "model": f"{len(tensors)} tensors of {numbers:,} numbers [{layout}]",
        "optimizer": f"{kind.optimizer} [{_digest(kind.parameters)}]",
        "batch": order.batch,
        "samples": order.size,
        "steps": steps,
        "seed": order.seed,
        "shuffle": order.shuffled,
        "state": _digest(sorted(kind.others)),
        **{name: option if isinstance(option, bool | str) else str(option) for name, option in options.items()},
    }
    return json.dumps(terms, separators=(",", ":"))


def require_same_terms(own: str, environ: MutableMapping[str, str]) -> None:
    """Raises ScriptMismatch if running trainers have other terms. Checks only the first run of a process."""
    theirs = environ.pop(TERMS, "")
    if theirs and theirs != own:
        raise ScriptMismatch(
            f"this script does not match the running job that it should join: {_differences(own, theirs)}. "
            "Submit a changed script as another job"
        )


def _differences(own: str, theirs: str) -> str:
    try:
        here, there = json.loads(own), dict(json.loads(theirs))
    except (ValueError, TypeError):
        return f"its terms are {own}, those of the job are {theirs}"
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    return ", ".join(f"{name} is {here.get(name)} here and {there.get(name)} there" for name in names)


def _digest(*listed: object) -> str:
    return hashlib.blake2b(json.dumps(listed).encode(), digest_size=4).hexdigest()


def require_usable(optimizer: object, scheduler: object, *, has_update: bool) -> None:
    """Raises TypeError for optimizers and schedulers that a run cannot step."""
    if isinstance(optimizer, list | tuple | dict | set):
        raise TypeError(
            f"optimizer is a {type(optimizer).__name__}, but a run steps one optimizer: use one with parameter groups "
            "(torch.optim.AdamW([{'params': …, 'lr': …}, …])); or pass one of them to the run, step all of them in "
            "update=, and pass the others in state= so that they survive"
        )
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, not a {type(optimizer).__name__}")
    if isinstance(optimizer, LBFGS):
        raise TypeError(
            "LBFGS needs a closure, because it evaluates the loss several times in one step, but a run all-reduces one "
            "gradient in a step: use an optimizer whose step() needs no closure, such as AdamW or SGD"
        )
    if isinstance(scheduler, ReduceLROnPlateau) and not has_update:
        raise TypeError(
            "ReduceLROnPlateau needs a metric in each step(), which a run does not have: step it in update=, with a "
            "metric that is the same on all ranks, such as run.loss, and pass it in state= instead of scheduler=; or "
            "use a scheduler that depends only on the number of steps"
        )


def about_batch_norm(model: nn.Module) -> str | None:
    """Returns a warning that names the first BatchNorm layers, if there are any."""
    found = [name or type(module).__name__ for name, module in model.named_modules() if isinstance(module, _BatchNorm)]
    if not found:
        return None
    more = f" and {len(found) - _NAMED_AT_MOST} more" if len(found) > _NAMED_AT_MOST else ""
    named = f"{'BatchNorm layer' if len(found) == 1 else 'BatchNorm layers'} {', '.join(found[:_NAMED_AT_MOST])}{more}"
    return (
        f"warning: the model has {named}. BatchNorm computes its statistics from a rank's own share, so the "
        "result depends on the number of ranks; with GroupNorm or LayerNorm it does not"
    )


def about_learning_rate(script: list[float], checkpoint: list[float]) -> str | None:
    """Returns a remark if the learning rates of script and checkpoint differ."""
    if script == checkpoint:
        return None
    return (
        f"the run resumes with lr {_shown(checkpoint)} of the checkpoint, not with lr {_shown(script)} of the script: "
        "the learning rate is part of the state. To continue with another one, set it in update=, or begin a run in "
        "another folder"
    )


def _shown(rates: list[float]) -> str:
    different = list(dict.fromkeys(rates))
    shown = ", ".join(f"{rate:g}" for rate in different[:_NAMED_AT_MOST])
    return f"{shown} …" if len(different) > _NAMED_AT_MOST else shown


def quiet(model: nn.Module) -> None:
    """Disables the collectives of DistributedDataParallel, because the run all-reduces the gradients.

    A remaining collective would wait in the group of the first world for ranks that have left or compute nothing.
    """
    for each in model.modules():
        if isinstance(each, DistributedDataParallel):
            _quiet(each)


def _quiet(wrapper: DistributedDataParallel) -> None:
    if wrapper._delay_all_reduce_params:
        raise ValueError(
            "DistributedDataParallel with delay_all_reduce_named_params all-reduces gradients itself: remove the option"
        )
    # Completes what steps before the run have left, while all their ranks are here.
    wrapper.reducer._rebuild_buckets()
    wrapper.require_backward_grad_sync = False  # as inside no_sync(), for good
    wrapper.require_forward_param_sync = False
    wrapper.broadcast_buffers = False
    if wrapper.static_graph:
        # Otherwise its first backward still enqueues one all-reduce.
        wrapper._static_graph_delay_allreduce_enqueued = True
