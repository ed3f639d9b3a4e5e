"""What a run cannot be made of, or should not be, said before the first step: what it is, why, and what to do."""

from typing import Final

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

_NAMED_AT_MOST: Final = 3


def require_usable(optimizer: object, scheduler: object, *, has_update: bool) -> None:
    """Raises TypeError for optimizers and schedulers that a run cannot step."""
    if isinstance(optimizer, list | tuple | dict | set):
        raise TypeError(
            f"optimizer is a {type(optimizer).__name__}, and a run steps one optimizer: give all parameters to one "
            "with parameter groups (torch.optim.AdamW([{'params': …, 'lr': …}, …])); or give the run one of them, step "
            "all of them in update=, and give the others in state= so that they survive"
        )
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}, but must be a torch.optim.Optimizer")
    if isinstance(optimizer, LBFGS):
        raise TypeError(
            "LBFGS evaluates the loss several times in one step (it needs a closure), and a run all-reduces one "
            "gradient in a step: use an optimizer whose step() needs no closure, such as AdamW or SGD"
        )
    if isinstance(scheduler, ReduceLROnPlateau) and not has_update:
        raise TypeError(
            "ReduceLROnPlateau needs a metric with each step(), which a run cannot know: step it in update=, with a "
            "metric that is the same on all ranks, as run.loss is, and give it in state= instead of scheduler=; or "
            "use a scheduler that depends on the number of steps only"
        )


def about_batch_norm(model: nn.Module) -> str | None:
    """A warning that names the first of the layers, if there are any."""
    found = [name or type(module).__name__ for name, module in model.named_modules() if isinstance(module, _BatchNorm)]
    if not found:
        return None
    more = f" and {len(found) - _NAMED_AT_MOST} more" if len(found) > _NAMED_AT_MOST else ""
    named = f"{'BatchNorm layer' if len(found) == 1 else 'BatchNorm layers'} {', '.join(found[:_NAMED_AT_MOST])}{more}"
    return (
        f"warning: the model has {named}. BatchNorm takes its statistics from a rank's own share, so the "
        "result depends on the number of ranks; use GroupNorm or LayerNorm for results that do not"
    )


def about_learning_rate(script: list[float], checkpoint: list[float]) -> str | None:
    """A remark if a checkpoint was begun with other learning rates than the script gives."""
    if script == checkpoint:
        return None
    return (
        f"the run resumes with lr {_shown(checkpoint)} of the checkpoint; the script gives {_shown(script)}, which is "
        "not used: the learning rate is part of the state. To train on with another one set it in update=, or begin a "
        "run in another folder"
    )


def _shown(rates: list[float]) -> str:
    different = list(dict.fromkeys(rates))
    shown = ", ".join(f"{rate:g}" for rate in different[:_NAMED_AT_MOST])
    return f"{shown} …" if len(different) > _NAMED_AT_MOST else shown
