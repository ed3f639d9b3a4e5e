"""Tradewind: train one PyTorch model across regions on spot GPUs, and keep it training while machines come and go.

What a training script uses is exported here. It is light: neither torch nor the command is imported before it is used.
"""

from typing import TYPE_CHECKING, Any

from tradewind.progress import checkpointed, hyperparameters, report

if TYPE_CHECKING:
    from tradewind.sdk.run import Run

__all__ = ["Run", "checkpointed", "hyperparameters", "report"]


def __getattr__(name: str) -> Any:
    if name == "Run":
        from tradewind.sdk.run import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
