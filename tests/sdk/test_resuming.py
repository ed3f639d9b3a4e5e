"""A run that finds a checkpoint prints that it resumes from it, or why it cannot."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import SGD
from torch.utils.data import TensorDataset

from tests.sdk.states import Rank
from tradewind.protocol.trainer import Assign, Store
from tradewind.sdk.certificate import Certificate
from tradewind.sdk.checkpoints import Saving, does_not_fit
from tradewind.sdk.errors import StateDoesNotFit
from tradewind.sdk.exchange import Collectives
from tradewind.sdk.run import Run
from tradewind.sdk.starting import Starting, resuming
from tradewind.sdk.trainer.state import World
from tradewind.sdk.training_state.layout import only_in_script, only_in_state

INPUTS = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
DATA = TensorDataset(INPUTS, INPUTS.sum(1, keepdim=True))

Train = Callable[..., Run]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Train]:
    """A run in a world of one, with its checkpoints in the same folder each time."""
    runs: list[Run] = []

    def trained(steps: int, **more: Any) -> Run:
        model = nn.Linear(4, 1)
        optimizer = SGD(model.parameters(), lr=0.01)
        run = Run(model, optimizer, DATA, batch=8, steps=steps, checkpoints=tmp_path, prefetch=False, **more)
        runs.append(run)
        for inputs, targets in run:
            run.backward(nn.functional.mse_loss(model(inputs), targets))
        return run

    yield trained
    for run in runs:
        run._parts.close()


def test_a_run_that_begins_says_nothing(train: Train, capsys: Capture) -> None:
    train(4)
    assert capsys.readouterr().err == ""


def test_a_run_that_continues_says_from_where(train: Train, tmp_path: Path, capsys: Capture) -> None:
    train(4)
    run = train(6)
    assert capsys.readouterr().err == f"tradewind: {resuming(4, 6, tmp_path)}\n"
    certificate = run.certificate
    assert (certificate.steps, certificate.samples, certificate.holds) == (6, 48, True)
    assert (certificate.resumed_at, certificate.recomputed) == ((4,), 0)


@pytest.mark.parametrize(("steps", "has"), [(4, "4 steps"), (1, "1 step")])
def test_a_run_with_nothing_left_to_do_says_so(
    train: Train, tmp_path: Path, capsys: Capture, steps: int, has: str
) -> None:
    train(4)
    train(steps)
    message = resuming(4, steps, tmp_path)
    assert capsys.readouterr().err == f"tradewind: {message}\n"
    assert f" {has}: " in message and str(tmp_path) in message


def test_a_run_with_fewer_steps_than_its_checkpoint_writes_none_of_a_step_it_was_not_at(
    train: Train, tmp_path: Path
) -> None:
    train(4)
    train(2)
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-000000000004.pt"]
    assert train(6).certificate.resumed_at == (4, 4)


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ({"scaler": GradScaler("cpu")}, {}, only_in_state("scaler")),
        ({}, {"state": {"more": GradScaler("cpu")}}, only_in_script("more")),
    ],
)
def test_a_checkpoint_of_another_state_is_refused_by_name_and_with_a_way_out(
    train: Train, tmp_path: Path, before: dict[str, Any], after: dict[str, Any], differs: str
) -> None:
    train(4, **before)
    with pytest.raises(StateDoesNotFit) as refused:
        train(6, **after)
    assert str(refused.value) == does_not_fit(tmp_path / "step-000000000004.pt", differs)


class Together:
    """A group whose ranks are threads."""

    def __init__(self, rank: int, place: list[Tensor], all_here: threading.Barrier) -> None:
        self.rank, self.size = rank, len(place)
        self._place, self._all_here = place, all_here

    def all_reduce_max(self, values: Tensor) -> None:
        values.copy_(torch.stack(self._shown(values)).amax(0))

    def broadcast(self, tensor: Tensor, source: int) -> None:
        tensor.copy_(self._shown(tensor)[source])

    def finish(self, *_: object) -> bool:
        return True

    def _shown(self, own: Tensor) -> list[Tensor]:
        self._place[self.rank] = own.clone()
        self._all_here.wait(20)
        seen = list(self._place)
        self._all_here.wait(20)
        return seen


@pytest.mark.parametrize("with_it", [(0, 1, 2), (1, 2), (2,)], ids=["all", "all but rank 0", "the last"])
def test_of_several_ranks_the_first_with_the_checkpoint_speaks(
    tmp_path: Path, capsys: Capture, with_it: tuple[int, ...]
) -> None:
    for rank in with_it:
        saved = Saving(tmp_path / f"{rank}", every_steps=5, payload=Rank(1).steps(10).state.payload)
        saved.save_now(5)
    place, all_here = [torch.empty(0)] * 3, threading.Barrier(3)

    def start(rank: int) -> int | None:
        state = Rank(rank).state
        saving = Saving(tmp_path / f"{rank}", every_steps=5, payload=state.payload)
        starting = Starting(state, Certificate(), saving)
        group: Any = Together(rank, place, all_here)
        first = starting.agree(Collectives(group, lambda: False), a_world(rank))
        assert first is not None
        starting.tell(first, steps=9)
        saving.close()
        return first

    with ThreadPoolExecutor(3) as ranks:
        assert list(ranks.map(start, range(3))) == [5, 5, 5]
    assert capsys.readouterr().err == f"tradewind: {resuming(5, 9, tmp_path / str(with_it[0]))}\n"


def a_world(rank: int) -> World:
    return World(Assign(1, rank, 3, "start", Store("127.0.0.1", 1)), (True,) * 3)
