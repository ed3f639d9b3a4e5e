"""A loss or a gradient that is NaN or infinite: all ranks decide the same for the step, and name the ranks."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import SGD

from tests.sdk.live_job import LiveJob, results
from tests.sdk.test_cases import BATCH, DATA, STEPS, a_model, a_run, end_threads, error_of, same
from tests.sdk.test_run import check
from tests.sdk.texts import numbers
from tests.sdk.trainee import Recipe
from tradewind.sdk.buckets import Buckets
from tradewind.sdk.certificate import Certificate, Digest
from tradewind.sdk.control_words import Agreed
from tradewind.sdk.data.order import Order
from tradewind.sdk.errors import NonfiniteStep
from tradewind.sdk.nonfinite import SKIPPED_AT_MOST, Nonfinite, warning, whose
from tradewind.sdk.run import Run
from tradewind.sdk.update import Scaled

__all__ = ["end_threads"]
SPOILS = float("nan")


def diverges_in(step: int, run: Run, loss: Callable[[Tensor, Tensor], Tensor], by: float = SPOILS) -> list[int]:
    """Trains, and returns the steps whose batches it got."""
    steps = []
    for inputs, targets in run:
        steps.append(run.step)
        run.backward(loss(inputs, targets) * (by if run.step == step else 1.0))
    return steps


def agreed(*, loss: tuple[int, ...] = (), gradient: tuple[int, ...] = ()) -> Agreed:
    return Agreed(0, 0, 7, Digest(), 0.0, (True,) * 4, loss, gradient)


@pytest.mark.parametrize("by", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_the_run_before_it_is_applied(by: float) -> None:
    model = a_model()
    run = a_run(model, SGD(model.parameters(), 0.1))
    with pytest.raises(NonfiniteStep, match=f"step 2: {whose(agreed(loss=(0,)))} .*on_nonfinite='skip'"):
        diverges_in(2, run, error_of(model), by)
    twin = a_model()
    optimizer = SGD(twin.parameters(), 0.1)
    _train_plainly(optimizer, error_of(twin), [0, 1])
    assert same(model.parameters(), twin.parameters())
    assert run.loss is not None and math.isnan(run.loss)


def test_a_gradient_that_is_not_finite_is_found_though_the_loss_is() -> None:
    model = a_model()
    run = a_run(model, SGD(model.parameters(), 0.1))
    with pytest.raises(NonfiniteStep, match=f"step 0: {whose(agreed(gradient=(0,)))} "):
        for inputs, _ in run:
            run.backward(torch.sqrt(model(inputs).mean() * 0.0))


def test_a_skipped_step_leaves_everything_as_it_was_and_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    model, twin = a_model(), a_model()
    run = a_run(model, SGD(model.parameters(), 0.1), on_nonfinite="skip")
    assert diverges_in(1, run, error_of(model)) == list(range(STEPS))
    _train_plainly(SGD(twin.parameters(), 0.1), error_of(twin), [0, 2, 3])
    assert same(model.parameters(), twin.parameters())
    certificate = run.certificate
    assert certificate.holds and (certificate.steps, certificate.nonfinite, certificate.skipped) == (STEPS, 1, 1)
    assert numbers(certificate.message()) == [STEPS, STEPS * BATCH, 0, 0, 1, 1]
    assert capsys.readouterr().err == f"tradewind: {warning(1, agreed(loss=(0,)), 'skip', 1)}\n"


def test_a_warning_comes_once_in_a_while_and_the_step_is_applied(capsys: pytest.CaptureFixture[str]) -> None:
    model = a_model()
    run = a_run(model, SGD(model.parameters(), 0.1), on_nonfinite="warn")
    diverges_in(1, run, error_of(model))
    assert all(bool(each.isnan().any()) for each in model.parameters())
    assert (run.certificate.nonfinite, run.certificate.skipped) == (STEPS - 1, 0)
    assert capsys.readouterr().err == f"tradewind: {warning(1, agreed(loss=(0,)), 'warn', 1)}\n"


def test_another_choice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"on_nonfinite.*'stop', 'skip'.*'warn'.*'ignore'"):
        a_run(a_model(), SGD(a_model().parameters(), 0.1), on_nonfinite="ignore")


def test_what_a_scaler_skips_is_counted_and_no_fault() -> None:
    model = a_model()
    run = a_run(model, SGD(model.parameters(), 0.1), scaler=GradScaler("cpu", init_scale=2.0**10))
    diverges_in(1, run, error_of(model), math.inf)
    assert (run.certificate.steps, run.certificate.skipped, run.certificate.skipped_in_a_row) == (STEPS, 1, 0)
    assert all(bool(each.isfinite().all()) for each in model.parameters())


def test_a_scaler_that_is_switched_off_excuses_nothing() -> None:
    model = a_model()
    run = a_run(model, SGD(model.parameters(), 0.1), scaler=GradScaler("cpu", enabled=False))
    with pytest.raises(NonfiniteStep, match="step 1"):
        diverges_in(1, run, error_of(model))


def test_nothing_but_skipped_steps_ends_the_run() -> None:
    model = a_model()
    run = a_run(model, SGD(model.parameters(), 0.1), steps=200, scaler=GradScaler("cpu"))
    with pytest.raises(NonfiniteStep, match=f"step {SKIPPED_AT_MOST - 1}: .* {SKIPPED_AT_MOST} "):
        for inputs, targets in run:
            run.backward(error_of(model)(inputs, targets) * SPOILS)


def test_counts_survive_a_checkpoint_and_old_ones_have_none() -> None:
    certificate = Certificate(steps=3, nonfinite=2, skipped=1, skipped_in_a_row=1)
    assert Certificate.from_dict(certificate.as_dict()) == certificate
    old = {name: value for name, value in certificate.as_dict().items() if "skipped" not in name}
    old.pop("nonfinite")
    assert Certificate.from_dict(old) == Certificate(steps=3)


def test_the_ranks_are_named() -> None:
    only_loss = whose(agreed(loss=(1,), gradient=(1,)))
    assert " loss " in only_loss and " gradient " not in only_loss and numbers(only_loss) == [1]
    loss, gradient = whose(agreed(loss=(1, 2), gradient=(1, 3))).split(" gradient ")
    assert " loss " in loss and (numbers(loss), numbers(gradient)) == ([1, 2], [3])
    many = whose(agreed(gradient=tuple(range(20))))
    assert " gradient " in many and " loss " not in many and numbers(many) == [*range(8), 12]


def test_skips_between_steps_that_are_applied_never_end_a_run() -> None:
    nonfinite = Nonfinite("skip", Certificate(), scaled=False)
    for step in range(10 * SKIPPED_AT_MOST):
        assert nonfinite.admits(step, agreed(loss=(1,) if step % 10 else ())) == (step % 10 == 0)


def errors(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.glob("error-*")]


async def test_all_ranks_end_with_the_same_words_and_the_step_is_reported_as_nan(tmp_path: Path) -> None:
    async with LiveJob(tmp_path, Recipe(str(tmp_path), steps=12, nan_in=(4,))) as job:
        await job.start(3)
        trainers = list(job.trainers)
        await job.wait_until(lambda: not any(trainer.alive for trainer in trainers), "the end of all")
        assert [trainer.exitcode for trainer in trainers] == [1, 1, 1]
        reported = [trainer.reports[-1] for trainer in trainers]
        assert [(each.step, each.loss, each.nonfinite) for each in reported] == [(4, None, True)] * 3
    said = errors(tmp_path)
    assert len(said) == 3 and all(each.startswith(f"step 4: {whose(agreed(loss=(0,)))} ") for each in said)
    assert not results(tmp_path)


async def test_one_that_missed_the_step_and_one_that_joined_skip_the_same(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=24, misses_all_reduce_of=5, nan_in=(5, 9, 10, 11, 12), on_nonfinite="skip")
    async with LiveJob(tmp_path, recipe) as job:
        job.hold_before(8)
        await job.start(3)
        await job.wait_until(lambda: len(job.worlds) > 1, "a repair")
        joining = await job.enlarge({})
        job.crawl_from(9)
        job.hold_before(None)
        await job.wait_active(*joining)
        job.crawl_from(None)
        await job.wait_finished()
    reported = check(tmp_path, recipe, finishers=4)
    assert [each["certificate"]["skipped"] for each in reported] == [5] * 4
    assert [each["certificate"]["nonfinite"] for each in reported] == [5] * 4


def _train_plainly(
    optimizer: torch.optim.Optimizer, loss: Callable[[Tensor, Tensor], Tensor], steps: list[int]
) -> None:
    order = Order(len(DATA), BATCH, seed=0)
    for step in steps:
        inputs, targets = DATA[order.indices(step)]
        optimizer.zero_grad()
        torch.autograd.backward(loss(inputs, targets))
        optimizer.step()


class ScalerThatCounts(GradScaler):
    looks = 0

    def get_scale(self) -> float:
        self.looks += 1
        return super().get_scale()


def test_the_scale_is_read_once_in_a_step_and_again_when_another_is_loaded() -> None:
    model = nn.Linear(1, 1)
    optimizer = SGD(model.parameters(), 0.1)
    scaler = ScalerThatCounts("cpu", init_scale=1024.0)
    scaled = Scaled(lambda: None, scaler, optimizer, Buckets(model.parameters()))

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        scaled()

    step()
    scaler.looks = 0
    step()
    assert (scaler.looks, scaled.skipped) == (1, False)
    scaled.load_state_dict(GradScaler("cpu", init_scale=8.0).state_dict())
    step()
    assert (scaler.get_scale(), scaled.skipped) == (8.0, False)
