"""A training state that does not fit is refused, with the first difference."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Adam, Optimizer

from tests.sdk.states import Rank, Scaler, a_model, adam, bytes_of, everything, hand_over, momentum
from tradewind.sdk.errors import StateDoesNotFit
from tradewind.sdk.training_state.layout import only_in_script, only_in_state
from tradewind.sdk.training_state.training_state import TrainingState


def a_wider_model() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def one_more_layer() -> nn.Module:
    return nn.Sequential(*a_model(1).children(), nn.Linear(3, 3))


def no_buffers() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.ReLU(), nn.Linear(7, 3))


def reversed_adam(model: nn.Module) -> Optimizer:
    return Adam(list(model.parameters())[::-1])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: Rank(1, model=a_wider_model()), r"'0\.weight'.*float32.*7×5.*float32.*8×5"),
        (lambda: Rank(1, model=a_model(1, torch.bfloat16)), r"'0\.weight'.*float32.*7×5.*bfloat16.*7×5"),
        (lambda: Rank(1, model=one_more_layer()), only_in_script("4.weight")),
        (lambda: Rank(1, model=no_buffers()), only_in_state("1.running_mean")),
        (lambda: Rank(1, model=nn.Sequential(nn.Linear(5, 7))), only_in_state("1.weight")),
        (lambda: Rank(1, momentum), "Adam .*SGD"),
        (lambda: Rank(1, lambda m: Adam([*m.parameters()][:2])), r"\[6\].*\[2\]"),
        (lambda: Rank(1, reversed_adam), "order.*parameters"),
        (lambda: Rank(1, others=lambda _: {"scaler": Scaler()}), only_in_script("scaler")),
    ],
)
def test_a_state_of_another_script_is_refused_and_changes_nothing(other: Any, message: str) -> None:
    giver, misfit = Rank(1).steps(10), other()
    before = everything(misfit.state)

    with pytest.raises(StateDoesNotFit, match=message):
        hand_over(giver.state, misfit.state)

    assert all(torch.equal(tensor, before[name]) for name, tensor in everything(misfit.state).items())


def test_bytes_that_are_too_few_are_refused() -> None:
    giver, joining_rank = Rank(1).steps(10), Rank(2)

    whole = bytes_of(giver.state)
    with pytest.raises(StateDoesNotFit, match=rf" {len(whole)} .* {len(whole) - 1} "):
        joining_rank.state.load(giver.state.header(), whole[:-1])


class Unspeakable:
    def state_dict(self) -> dict[str, Any]:
        return {"how": Scaler()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        raise AssertionError("never read")


def test_something_that_could_not_be_given_to_a_joining_worker_is_refused_at_the_start() -> None:
    model = a_model(1)

    with pytest.raises(TypeError, match="'odd'"):
        TrainingState(model, adam(model), {"odd": Unspeakable()})
