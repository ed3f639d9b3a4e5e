"""The learner: a model and its optimizer as buckets of gradients, as training state, and as an update."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from tradewind.sdk import checks
from tradewind.sdk.buckets import Buckets, parameters_of
from tradewind.sdk.certificate import Certificate
from tradewind.sdk.nonfinite import Nonfinite, OnNonfinite
from tradewind.sdk.training_state.training_state import Stateful, TrainingState
from tradewind.sdk.update import Applier, Scaled, Update


@dataclass(frozen=True, slots=True)
class Script:
    """The objects of a script: model, optimizer, and how the gradients of a step change them."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: Any = None
    clip_norm: float | None = None
    scaler: GradScaler | None = None
    update: Callable[[], None] | None = None
    state: Mapping[str, Stateful] | None = None


class Learner:
    def __init__(self, script: Script, certificate: Certificate, on_nonfinite: OnNonfinite, seed: int) -> None:
        checks.require_usable(script.optimizer, script.scheduler, has_update=script.update is not None)
        checks.quiet(script.model)
        optimizer, scaler = script.optimizer, script.scaler
        writes = script.update is not None or script.clip_norm is not None or scaler is not None
        self.buckets = Buckets(parameters_of(script.model, optimizer), copies=writes)
        nonfinite = Nonfinite(on_nonfinite, certificate, scaled=scaler is not None and scaler.is_enabled())
        update = script.update or Update(self.buckets, optimizer, script.scheduler, script.clip_norm, scaler)
        scaled = Scaled(update, scaler, optimizer, self.buckets) if scaler is not None else None
        is_own = script.update is not None
        self.applier = Applier(self.buckets, optimizer, scaled or update, nonfinite, seed, is_own=is_own)
        own = {"tradewind": _SavedCertificate(certificate), "scheduler": script.scheduler, "scaler": scaled}
        others = _together({name: one for name, one in own.items() if one is not None}, script.state or {})
        self.state = TrainingState(script.model, optimizer, others)
        self.scaler = scaler
        self.warning = checks.about_batch_norm(script.model)
        """A warning about the model, which one rank prints when the run begins."""
        self.terms: dict[str, object] = {
            "trained": self.buckets.trained,
            "buckets": self.buckets.layout,
            "device": self.buckets.device.type,
            "clip_norm": script.clip_norm,
            "scaler": type(scaler).__name__,
            "scheduler": type(script.scheduler).__name__,
            "update": is_own,
            "on_nonfinite": on_nonfinite,
        }
        """Options, beside the state, that must be the same on all ranks for the same result of a step."""


class _SavedCertificate:
    """The certificate as a part of the training state."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate

    def state_dict(self) -> dict[str, Any]:
        return self._certificate.as_dict()

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        self._certificate.take_over(Certificate.from_dict(state_dict))


def _together(own: Mapping[str, Stateful], given: Mapping[str, Stateful]) -> dict[str, Stateful]:
    for name in own.keys() & given.keys():
        raise ValueError(f"state has {name!r}, a name that the run itself uses for a part of its state: rename it")
    return {**own, **given}
