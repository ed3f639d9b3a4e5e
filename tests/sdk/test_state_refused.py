"""A training state that does not fit is refused in one sentence."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Adam, Optimizer

from tests.sdk.states import Rank, Scaler, a_model, adam, bytes_of, everything, hand_over, momentum
from tradewind.sdk.errors import StateDoesNotFit
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
    ("other", "sentence"),
    [
        (
            lambda: Rank(1, model=a_wider_model()),
            "'0.weight' is float32 of 7×5 in the state and float32 of 8×5 in this",
        ),
        (
            lambda: Rank(1, model=a_model(1, torch.bfloat16)),
            "'0.weight' is float32 of 7×5 in the state and bfloat16 of",
        ),
        (lambda: Rank(1, model=one_more_layer()), "this script has '4.weight', which the state has not"),
        (lambda: Rank(1, model=no_buffers()), "the state has '1.running_mean', which this script has not"),
        (lambda: Rank(1, model=nn.Sequential(nn.Linear(5, 7))), "the state has '1.weight', which this script has not"),
        (lambda: Rank(1, momentum), "the state is of the optimizer Adam, this script has SGD"),
        (
            lambda: Rank(1, lambda m: Adam([*m.parameters()][:2])),
            r"hold \[6\] parameters in the state and \[2\] in this",
        ),
        (lambda: Rank(1, reversed_adam), "the parameters in another order"),
        (lambda: Rank(1, others=lambda _: {"scaler": Scaler()}), "'scaler' is in this script but not in the state"),
    ],
)
def test_a_state_of_another_script_is_refused_in_one_sentence_and_changes_nothing(other: Any, sentence: str) -> None:
    giver, misfit = Rank(1).steps(10), other()
    before = everything(misfit.state)

    with pytest.raises(StateDoesNotFit, match=sentence):
        hand_over(giver.state, misfit.state)

    assert all(torch.equal(tensor, before[name]) for name, tensor in everything(misfit.state).items())


def test_bytes_that_are_too_few_are_refused() -> None:
    giver, joiner = Rank(1).steps(10), Rank(2)

    with pytest.raises(StateDoesNotFit, match="bytes came for a state of"):
        joiner.state.load(giver.state.header(), bytes_of(giver.state)[:-1])


class Unspeakable:
    def state_dict(self) -> dict[str, Any]:
        return {"how": Scaler()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        raise AssertionError("never read")


def test_something_that_could_not_be_given_to_a_joiner_is_refused_at_the_start() -> None:
    model = a_model(1)

    with pytest.raises(TypeError, match="the state of 'odd' cannot be given to another machine"):
        TrainingState(model, adam(model), {"odd": Unspeakable()})
