"""A run refuses optimizers and schedulers that it cannot use, with advice, and warns of layers that it should not."""

from pathlib import Path
from typing import Any, cast

import pytest
from torch import nn
from torch.optim import LBFGS, SGD, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from tests.sdk.test_cases import a_model, a_run, end_threads, error_of, trained
from tradewind.sdk.checks import about_learning_rate
from tradewind.sdk.run import Run
from tradewind.sdk.starting import resuming

__all__ = ["end_threads"]
Capture = pytest.CaptureFixture[str]


def of(model: nn.Module, rate: float = 0.1) -> SGD:
    return SGD(model.parameters(), rate)


@pytest.mark.parametrize("several", [list, tuple, lambda each: dict(enumerate(each))], ids=["list", "tuple", "dict"])
def test_several_optimizers_are_refused(several: Any) -> None:
    model = a_model()
    with pytest.raises(TypeError, match=r"(list|tuple|dict).*AdamW\(.*update=.*state="):
        a_run(model, several([of(model), of(model)]))


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer.*Linear"):
        a_run(a_model(), cast(Any, nn.Linear(1, 1)))


def test_lbfgs_is_refused() -> None:
    model = a_model()
    with pytest.raises(TypeError, match=r"LBFGS.*AdamW.*SGD"):
        a_run(model, LBFGS(model.parameters()))


def test_a_schedule_that_needs_a_metric_is_refused_and_works_in_an_update() -> None:
    model = a_model()
    optimizer = of(model)
    scheduler = ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
    with pytest.raises(TypeError, match=r"ReduceLROnPlateau.*update=.*run\.loss.*state="):
        a_run(model, optimizer, scheduler=scheduler)
    seen: list[float | None] = []

    def update() -> None:
        optimizer.step()
        seen.append(run.loss)
        assert run.loss is not None
        scheduler.step(run.loss)

    run = a_run(model, optimizer, update=update, state={"plateau": scheduler})
    trained(run, error_of(model))
    assert len(seen) == 4 and seen[-1] == run.loss and optimizer.param_groups[0]["lr"] < 0.1


@pytest.mark.parametrize(("layers", "named"), [(1, "layer 1"), (5, "layers 1, 2, 3 and 2 more")])
def test_layers_that_look_at_the_whole_batch_get_one_warning(layers: int, named: str, capsys: Capture) -> None:
    model = nn.Sequential(nn.Linear(4, 2), *(nn.BatchNorm1d(2) for _ in range(layers)), nn.Linear(2, 1))
    trained(a_run(model, of(model)), error_of(model))
    err = capsys.readouterr().err
    assert err.count("warning:") == 1 and f" BatchNorm {named}. " in err and "GroupNorm" in err


def resumed(folder: Path, rate: float, steps: int, scheduled: bool) -> Run:
    model = a_model()
    optimizer: Optimizer = of(model, rate)
    schedule = StepLR(optimizer, 1, 0.5) if scheduled else None
    run = a_run(model, optimizer, steps=steps, checkpoints=folder, scheduler=schedule)
    trained(run, error_of(model))
    return run


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_run_that_resumes_with_another_learning_rate_says_so(
    tmp_path: Path, capsys: Capture, scheduled: bool
) -> None:
    resumed(tmp_path, 0.0003, 2, scheduled)
    resumed(tmp_path, 0.0003, 3, scheduled)
    assert capsys.readouterr().err == f"tradewind: {resuming(2, 3, tmp_path)}\n"
    resumed(tmp_path, 0.001, 4, scheduled)
    remark = about_learning_rate([0.001], [0.0003])
    assert remark is not None and remark.index("0.0003") < remark.index("0.001")
    assert capsys.readouterr().err == f"tradewind: {resuming(3, 4, tmp_path)}\ntradewind: {remark}\n"
