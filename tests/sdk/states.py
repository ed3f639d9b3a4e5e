"""Builders of training states: a model, its optimizer, and steps that depend on a seed only."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from tradewind.sdk.training_state.tensor_bytes import Staging
from tradewind.sdk.training_state.training_state import Stateful, TrainingState

MakeOptimizer = Callable[[nn.Module], Optimizer]


def a_model(seed: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3)).to(dtype)


def momentum(model: nn.Module) -> Optimizer:
    return SGD(model.parameters(), lr=0.1, momentum=0.9)


def adam(model: nn.Module) -> Optimizer:
    return Adam(model.parameters(), lr=0.01)


def fused_adam(model: nn.Module) -> Optimizer:
    return Adam(model.parameters(), lr=0.01, fused=True)


def two_groups(model: nn.Module) -> Optimizer:
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0, "lr": 0.002}]
    return AdamW(groups, lr=0.01, amsgrad=True, foreach=True)


OPTIMIZERS = [momentum, adam, fused_adam, two_groups]


class Odd(nn.Module):
    """One element, no element, tied weights, a matrix that does not lie in order, and a buffer that is no state."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.scale = nn.Parameter(torch.randn(()))
        self.nothing = nn.Parameter(torch.randn(0, 4))
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight
        self.turned = nn.Parameter(torch.randn(3, 5).t())
        self.picture = nn.utils.convert_conv2d_weight_memory_format(nn.Conv2d(3, 2, 3), torch.channels_last)
        self.register_buffer("mask", torch.rand(3, 3) > 0.5)
        self.register_buffer("scratch", torch.rand(seed), persistent=False)
        self.seen = seed

    def get_extra_state(self) -> dict[str, int]:
        return {"seen": self.seen}

    def set_extra_state(self, state: Any) -> None:
        self.seen = state["seen"]


class Scaler:
    """Like a gradient scaler: its numbers are partly tensors."""

    def __init__(self) -> None:
        self.scale = torch.tensor(65536.0)
        self.growth = 0

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self.scale, "growth": self.growth}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.scale = state_dict["scale"]
        self.growth = state_dict["growth"]


class Rank:
    """What one trainer holds, and how it takes a step."""

    def __init__(
        self,
        seed: int,
        make_optimizer: MakeOptimizer = adam,
        model: nn.Module | None = None,
        others: Callable[[Optimizer], Mapping[str, Stateful]] = lambda optimizer: {},
    ) -> None:
        self.model = a_model(seed) if model is None else model
        self.optimizer = make_optimizer(self.model)
        self.others = others(self.optimizer)
        self.state = TrainingState(self.model, self.optimizer, self.others)

    def step(self, seed: int) -> None:
        """Applies the sum of a step, which is the same on every rank."""
        torch.manual_seed(seed)
        for parameter in self.model.parameters():
            parameter.grad = torch.randn(parameter.shape).to(parameter.dtype)
        self.optimizer.step()

    def forward(self, seed: int) -> None:
        """Moves the buffers of this rank."""
        torch.manual_seed(seed)
        self.model(torch.randn(4, 5, dtype=next(self.model.parameters()).dtype))

    def steps(self, *seeds: int) -> "Rank":
        for seed in seeds:
            self.step(seed)
        return self


def everything(state: TrainingState) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.tensors() + state.buffers()}


def differences(left: TrainingState, right: TrainingState) -> list[str]:
    """Names of the tensors that are not the same to the last bit."""
    ours, theirs = everything(left), everything(right)
    missing = sorted(ours.keys() ^ theirs.keys())
    return missing + [name for name in ours.keys() & theirs.keys() if not _same_bits(ours[name], theirs[name])]


def bytes_of(state: TrainingState, of: int = 1) -> bytearray:
    staging = Staging(-(-state.nbytes() // of))
    return bytearray(b"".join(bytes(state.copy_shard(shard, of, staging)) for shard in range(of)))


def hand_over(giver: TrainingState, taker: TrainingState, of: int = 1) -> None:
    taker.load(giver.header(), bytes_of(giver, of))


def _same_bits(left: Tensor, right: Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8))
