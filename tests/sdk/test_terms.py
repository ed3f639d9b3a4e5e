"""A worker with another script than the running job is refused before it enters a world."""

import json
import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.sdk.texts import numbers
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
    reported = json.loads(terms())
    assert numbers(reported["model"].partition("[")[0]) == [2, 10]
    assert reported["optimizer"].startswith("Adam [")
    assert {name: reported[name] for name in ("batch", "samples", "steps", "seed", "shuffle")} == {
        "batch": 8,
        "samples": 100,
        "steps": 50,
        "seed": 0,
        "shuffle": True,
    }


def test_only_differences_are_reported() -> None:
    with pytest.raises(ScriptMismatch) as refused:
        require_same_terms(terms(batch=48, clip_norm=1.0), {TERMS: terms(batch=32, clip_norm=None)})
    message = str(refused.value)
    found = re.search(r": batch (.*), clip_norm (.*1\.0.*None)", message)
    assert found is not None and numbers(found[1]) == [48, 32]
    assert not any(name in message for name in ("model", "optimizer", "samples", "steps", "seed", "shuffle"))


@pytest.mark.parametrize("theirs", ["2 tensors", "[1]", "7", "null"])
def test_unreadable_terms_are_shown_whole(theirs: str) -> None:
    with pytest.raises(ScriptMismatch) as refused:
        require_same_terms(terms(), {TERMS: theirs})
    assert terms() in str(refused.value) and f" {theirs}." in str(refused.value)


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
    with pytest.raises(ScriptMismatch) as refused:
        require_same_terms(terms(**changes), {TERMS: terms()})
    here, there = json.loads(terms(**changes)), json.loads(terms())
    different = [name for name in here if here[name] != there.get(name)]
    named = ".*".join(re.escape(f"{each}") for name in different for each in (name, here[name], there.get(name)))
    assert different and re.search(named, str(refused.value))


def test_who_is_first_has_nobody_to_agree_with() -> None:
    require_same_terms(terms(), {})
    require_same_terms(terms(), {TERMS: ""})
    require_same_terms(terms(), {TERMS: terms()})


def test_a_second_run_of_the_same_script_joins_nobody() -> None:
    environ = {TERMS: terms()}
    require_same_terms(terms(), environ)
    require_same_terms(terms(steps=51), environ)


def test_a_layer_that_is_frozen_makes_other_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensors are the same, but the frozen layer has no gradients."""
    reported = []
    for frozen in (False, True):
        model = nn.Linear(4, 2)
        model.bias.requires_grad = not frozen
        run = Run(model, torch.optim.Adam(model.parameters()), TensorDataset(torch.zeros(9, 4)), batch=8, steps=50)
        reported.append(run._parts.trainer._state.terms)
    assert reported[0] != reported[1]


def test_a_run_on_other_terms_ends_before_it_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TERMS, terms())
    monkeypatch.setenv("TRADEWIND_TRAINER_SOCKET", "/nowhere")
    model = nn.Linear(4, 2)
    with pytest.raises(ScriptMismatch):
        Run(model, torch.optim.Adam(model.parameters()), TensorDataset(torch.zeros(9, 4)), batch=8, steps=50)
