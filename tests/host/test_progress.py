import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

import tradewind
from tradewind import progress


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The host's end; this process plays the trainer."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    monkeypatch.setattr(progress, "_channel", None)
    progress.connect(write_end)
    yield read_end
    os.close(read_end)
    os.close(write_end)


def reports(pipe: int) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in os.read(pipe, 1 << 20).splitlines()]
    except BlockingIOError:
        return []


def test_reporting_outside_of_a_trainer_does_nothing() -> None:
    tradewind.report(1, loss=0.5, samples=8)
    assert progress._channel is None


def test_reports_arrive_in_order_with_their_time(pipe: int) -> None:
    for step in range(3):
        tradewind.report(step, loss=step / 2, samples=8)
    got = reports(pipe)
    assert [(report["step"], report["loss"], report["samples"]) for report in got] == [
        (0, 0, 8),
        (1, 0.5, 8),
        (2, 1, 8),
    ]
    assert [report["at"] for report in got] == sorted(report["at"] for report in got)


def test_a_checkpoint_is_told_over_the_same_pipe(pipe: int) -> None:
    tradewind.report(4)
    tradewind.checkpointed()
    assert [progress.is_checkpoint(report) for report in reports(pipe)] == [False, True]


def test_a_checkpoint_outside_of_a_trainer_is_not_reported() -> None:
    tradewind.checkpointed()
    assert progress._channel is None


@pytest.mark.parametrize("loss", [None, "high", 10**400])
def test_a_loss_that_is_no_number_is_told_as_absent(pipe: int, loss: object) -> None:
    tradewind.report(7, loss=cast(float, loss))
    (report,) = reports(pipe)
    assert (report["step"], report["loss"], report["samples"], "nonfinite" in report) == (7, None, None, False)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_told_apart_from_none(pipe: int, loss: float) -> None:
    tradewind.report(7, loss=loss)
    (report,) = reports(pipe)
    assert (report["step"], report["loss"], report["nonfinite"]) == (7, None, True)


@pytest.mark.parametrize("step", [None, "first", math.nan, math.inf, 2**64, object()])
def test_a_step_that_is_no_number_is_not_told(pipe: int, step: object) -> None:
    tradewind.report(cast(int, step), loss=1.0)
    assert reports(pipe) == []


def test_a_full_pipe_neither_blocks_nor_grows_and_keeps_the_newest(pipe: int) -> None:
    for step in range(5000):
        tradewind.report(step)
    reported = [report["step"] for report in reports(pipe)]
    tradewind.report(5000)
    later = [report["step"] for report in reports(pipe)]
    assert reported[:100] == list(range(100))
    assert reported + later == sorted({*reported, *later})
    assert later[-1] == 5000
    assert len(later) <= 256


def test_a_host_that_is_gone_does_not_disturb_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    monkeypatch.setattr(progress, "_channel", None)
    progress.connect(write_end)
    os.close(read_end)
    tradewind.report(1)
    os.close(write_end)
    tradewind.report(2)
    assert progress._channel is not None


def test_hyperparameters_are_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRADEWIND_HYPERPARAMETERS", raising=False)
    assert tradewind.hyperparameters() == {}
    monkeypatch.setenv("TRADEWIND_HYPERPARAMETERS", '{"learning_rate": 0.1, "given": {"layers": 2}}')
    assert tradewind.hyperparameters() == {"learning_rate": 0.1, "given": {"layers": 2}}


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_hyperparameters_that_are_no_object_are_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TRADEWIND_HYPERPARAMETERS", text)
    with pytest.raises(ValueError, match="TRADEWIND_HYPERPARAMETERS"):
        tradewind.hyperparameters()


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, tradewind; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    heavy = {"torch", "numpy", "click", "rich", "aiohttp", "msgspec", "nats", "structlog", "yaml", "asyncio"}
    assert heavy & set(found.stdout.split()) == set()
