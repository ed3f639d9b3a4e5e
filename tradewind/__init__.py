"""Tradewind: train one PyTorch model across regions on spot GPUs, and keep it training while machines come and go.

What a training script uses is exported here. It is light: neither torch nor the command is imported with it.
"""

from tradewind.progress import hyperparameters, report

__all__ = ["hyperparameters", "report"]
