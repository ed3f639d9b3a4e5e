"""Who joins with another script than the others run is refused before anybody has heard of it."""

import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tradewind.protocol.variables import TERMS
from tradewind.sdk.checks import require_same_terms, terms_of
from tradewind.sdk.data.order import Order
from tradewind.sdk.errors import ScriptMismatch
from tradewind.sdk.run import Run
from tradewind.sdk.training_state.training_state import TrainingState


def terms(model: nn.Module | None = None, optimizer: Any = torch.optim.Adam, **changes: Any) -> str:
    model = model or nn.Linear(4, 2)
    order = Order(
        changes.pop("size", 100), changes.pop("batch", 8), changes.pop("seed", 0), changes.pop("shuffle", True)
    )
    state = TrainingState(model, optimizer(model.parameters(), lr=changes.pop("lr", 0.1)), changes.pop("others", None))
    return terms_of(state, order, changes.pop("steps", 50), **changes)


def test_they_are_words_that_people_can_compare() -> None:
    told = json.loads(terms())
    assert told["model"].startswith("2 tensors of 10 numbers [")
    assert told["optimizer"].startswith("Adam [")
    assert {name: told[name] for name in ("batch", "samples", "steps", "seed", "shuffle")} == {
        "batch": 8,
        "samples": 100,
        "steps": 50,
        "seed": 0,
        "shuffle": True,
    }


def test_only_what_differs_is_told() -> None:
    with pytest.raises(ScriptMismatch) as refused:
        require_same_terms(terms(batch=48, clip_norm=1.0), {TERMS: terms(batch=32, clip_norm=None)})
    assert str(refused.value) == (
        "this script does not match the running job that it should join: batch is 48 here and 32 there, "
        "clip_norm is 1.0 here and None there. Submit a changed script as another job"
    )


@pytest.mark.parametrize("theirs", ["2 tensors", "[1]", "7", "null"])
def test_terms_that_cannot_be_read_are_told_whole(theirs: str) -> None:
    with pytest.raises(ScriptMismatch, match=r"it has .*, the run has"):
        require_same_terms(terms(), {TERMS: theirs})


def test_weights_and_the_learning_rate_are_not_among_them() -> None:
    assert terms() == terms(lr=0.2)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": nn.Linear(4, 3)},
        {"model": nn.Sequential(nn.Linear(4, 2))},
        {"model": nn.Linear(4, 2, dtype=torch.float64)},
        {"optimizer": torch.optim.SGD},
        {"others": {"mine": nn.Linear(1, 1)}},
        {"size": 101},
        {"batch": 9},
        {"seed": 1},
        {"shuffle": False},
        {"steps": 51},
        {"clip_norm": 1.0},
        {"trained": "1 of 2"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_else_differs_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ScriptMismatch, match=r" is .* here and .* there"):
        require_same_terms(terms(**changes), {TERMS: terms()})


def test_who_is_first_has_nobody_to_agree_with() -> None:
    require_same_terms(terms(), {})
    require_same_terms(terms(), {TERMS: ""})
    require_same_terms(terms(), {TERMS: terms()})


def test_a_second_run_of_the_same_script_joins_nobody() -> None:
    environ = {TERMS: terms()}
    require_same_terms(terms(), environ)
    require_same_terms(terms(steps=51), environ)


def test_a_layer_that_is_frozen_makes_other_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sum is shorter, though all tensors are alike."""
    told = []
    for frozen in (False, True):
        model = nn.Linear(4, 2)
        model.bias.requires_grad = not frozen
        run = Run(model, torch.optim.Adam(model.parameters()), TensorDataset(torch.zeros(9, 4)), batch=8, steps=50)
        told.append(run._parts.trainer._state.terms)
    assert told[0] != told[1]


def test_a_run_on_other_terms_ends_before_it_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TERMS, terms())
    monkeypatch.setenv("TRADEWIND_TRAINER_SOCKET", "/nowhere")
    model = nn.Linear(4, 2)
    with pytest.raises(ScriptMismatch):
        Run(model, torch.optim.Adam(model.parameters()), TensorDataset(torch.zeros(9, 4)), batch=8, steps=50)
