"""Tradewind: train one PyTorch model across regions on spot GPUs, and continue when machines are lost or added.

This module exports the API for training scripts. It imports torch and the command only when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tradewind.progress import checkpointed, hyperparameters, report

if TYPE_CHECKING:
    from tradewind.sdk.certificate import Certificate
    from tradewind.sdk.errors import NonfiniteStep, PeerLost, ReadFailed, ScriptMismatch, StateDoesNotFit
    from tradewind.sdk.run import Run
    from tradewind.sdk.training_state.training_state import Stateful

__all__ = [
    "Certificate",
    "NonfiniteStep",
    "PeerLost",
    "ReadFailed",
    "Run",
    "ScriptMismatch",
    "StateDoesNotFit",
    "Stateful",
    "checkpointed",
    "hyperparameters",
    "report",
]

_LAZY: Final = {
    "Certificate": "tradewind.sdk.certificate",
    "NonfiniteStep": "tradewind.sdk.errors",
    "PeerLost": "tradewind.sdk.errors",
    "ReadFailed": "tradewind.sdk.errors",
    "Run": "tradewind.sdk.run",
    "ScriptMismatch": "tradewind.sdk.errors",
    "StateDoesNotFit": "tradewind.sdk.errors",
    "Stateful": "tradewind.sdk.training_state.training_state",
}
"""The modules of names that are imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
