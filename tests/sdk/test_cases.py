"""Scripts of many kinds, in a world of one: each trains as it would without a run, or is refused."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import SGD, AdamW, Optimizer, SparseAdam
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from tradewind.sdk.buckets import Buckets, parameters_of
from tradewind.sdk.data.order import Order
from tradewind.sdk.run import Run

BATCH = 8
STEPS = 4
INPUTS = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
DATA = TensorDataset(INPUTS, INPUTS.sum(1, keepdim=True))

Loss = Callable[[Tensor, Tensor], Tensor]


def a_model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))


def error_of(model: nn.Module) -> Loss:
    return lambda inputs, targets: nn.functional.mse_loss(model(inputs), targets)


RUNS: list[Run] = []


@pytest.fixture(autouse=True)
def end_threads() -> Iterator[None]:
    """A run keeps them as long as its process lives, and other tests count them."""
    yield
    while RUNS:
        RUNS.pop()._parts.close()


def a_run(model: nn.Module, optimizer: Optimizer, dataset: Any = DATA, **more: Any) -> Run:
    RUNS.append(Run(model, optimizer, dataset, **{"batch": BATCH, "steps": STEPS, "prefetch": False, **more}))
    return RUNS[-1]


def trained(run: Run, loss: Loss) -> list[int]:
    """Trains, and returns the sizes of the batches."""
    sizes = []
    for inputs, targets in run:
        run.backward(loss(inputs, targets))
        sizes.append(len(inputs))
    return sizes


def trained_plainly(optimizer: Optimizer, loss: Loss, clip: Callable[[], object] = lambda: None) -> None:
    """Trains on the same samples in an ordinary loop."""
    order = Order(len(DATA), BATCH, seed=0)
    for step in range(STEPS):
        inputs, targets = DATA[order.indices(step)]
        optimizer.zero_grad()
        torch.autograd.backward(loss(inputs, targets))
        clip()
        optimizer.step()


def same(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> bool:
    return all(torch.allclose(one, other, rtol=1e-5, atol=1e-7) for one, other in zip(ours, theirs, strict=True))


def test_parameters_that_only_the_optimizer_has_are_trained() -> None:
    model, outside = nn.Linear(4, 1), nn.Parameter(torch.zeros(1))
    of_both: list[Tensor] = [*model.parameters(), outside]
    run = a_run(model, SGD(of_both, lr=1.0))

    trained(run, lambda inputs, _: model(inputs).mean() * 0 + outside.mean())

    assert outside.item() == -STEPS and outside.grad is None


def test_the_order_of_gradients_is_the_models_and_then_the_optimizers() -> None:
    model, outside = nn.Linear(4, 1), nn.Parameter(torch.zeros(1))
    groups: list[dict[str, Any]] = [{"params": [outside, model.bias]}, {"params": [model.weight]}]

    assert [id(each) for each in parameters_of(model, SGD(groups))] == [id(model.weight), id(model.bias), id(outside)]


def test_a_step_of_the_scripts_own_is_refused_while_the_run_continues() -> None:
    model = a_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    run = a_run(model, optimizer)
    with pytest.raises(RuntimeError, match=r"optimizer[.]step\(\).*update="):
        for inputs, targets in run:
            run.backward(error_of(model)(inputs, targets))
            optimizer.step()
    optimizer.step()


@pytest.mark.parametrize("when", ["before", "after"])
def test_gradients_that_the_script_clears_are_not_lost_without_a_word(when: str) -> None:
    model = a_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    run = a_run(model, optimizer, max_share=2)
    with pytest.raises(RuntimeError, match=r"zero_grad\(\)"):
        for inputs, targets in run:
            if when == "before":
                optimizer.zero_grad()
            run.backward(error_of(model)(inputs, targets))
            if when == "after":
                optimizer.zero_grad()
    assert run.step == 0


def test_a_data_loader_is_no_dataset() -> None:
    model = a_model()
    with pytest.raises(TypeError, match=r"DataLoader.*collate="):
        a_run(model, SGD(model.parameters()), DataLoader(DATA))


def test_what_is_unfrozen_while_the_run_continues_is_refused() -> None:
    model = a_model()
    first = next(model.parameters()).requires_grad_(False)
    run = a_run(model, SGD(model.parameters()))

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        first.requires_grad_(run.step >= 2)
        return error_of(model)(inputs, targets)

    with pytest.raises(RuntimeError, match=r"tradewind[.]Run\("):
        trained(run, loss)
    assert run.step == 2


def test_what_is_frozen_after_the_run_is_made_may_be_unfrozen_again() -> None:
    ours, theirs = a_model(), a_model()
    run = a_run(ours, AdamW(ours.parameters(), weight_decay=0.5))
    steps = iter(range(STEPS))

    def freezing(model: nn.Module, loss: Loss, step: Callable[[], int]) -> Loss:
        def frozen_at_first(inputs: Tensor, targets: Tensor) -> Tensor:
            next(model.parameters()).requires_grad_(step() >= 2)
            return loss(inputs, targets)

        return frozen_at_first

    trained(run, freezing(ours, error_of(ours), lambda: run.step))
    trained_plainly(
        AdamW(theirs.parameters(), weight_decay=0.5), freezing(theirs, error_of(theirs), lambda: next(steps))
    )

    assert same(ours.parameters(), theirs.parameters())


def test_a_parameter_that_nobody_used_is_left_alone_by_the_optimizer() -> None:
    used, unused = nn.Linear(4, 1), nn.Linear(4, 1)
    model = nn.ModuleList([used, unused])
    before = unused.weight.clone()

    trained(a_run(model, AdamW(model.parameters(), lr=0.1, weight_decay=0.5)), error_of(used))

    assert torch.equal(unused.weight, before)


def test_a_parameter_that_one_rank_used_has_a_gradient_on_all() -> None:
    one, other = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3))
    ranks = [Buckets([one, other]), Buckets([one, other])]
    one.grad = torch.ones(2)
    ranks[0].collect(6, 0)
    one.grad = None
    ranks[1].collect(6, 0)
    ranks[1].whole(6).add_(ranks[0].whole(6))

    ranks[1].use(6)

    assert one.grad is not None and torch.equal(one.grad, torch.ones(2))
    assert other.grad is None


def test_sparse_gradients_are_refused() -> None:
    model = nn.Embedding(8, 4, sparse=True)
    run = a_run(model, SparseAdam(list(model.parameters())), list(range(8)))

    with pytest.raises(TypeError, match=r"sparse=False"):
        for indices in run:
            run.backward(model(indices).mean())


def test_complex_parameters_are_refused() -> None:
    model = nn.Linear(4, 1, dtype=torch.complex64)
    with pytest.raises(ValueError, match=r"complex parameters"):
        a_run(model, SGD(model.parameters()))


def test_a_run_is_iterated_over_once() -> None:
    model = a_model()
    run = a_run(model, SGD(model.parameters()))
    trained(run, error_of(model))

    with pytest.raises(RuntimeError, match="only once"):
        iter(run)


@pytest.mark.parametrize("name", ["tradewind", "scheduler", "scaler"])
def test_a_state_with_a_name_of_the_runs_own_is_refused(name: str) -> None:
    model = a_model()
    optimizer = SGD(model.parameters())
    own = {"scheduler": StepLR(optimizer, 1), "scaler": GradScaler("cpu")}

    with pytest.raises(ValueError, match=f"state has '{name}'"):
        a_run(model, optimizer, **own, state={name: StepLR(optimizer, 1)})


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("max_share", [1, 3, BATCH, 100])
def test_a_share_that_comes_in_parts_trains_as_one_that_does_not(max_share: int, prefetch: bool) -> None:
    ours, theirs = a_model(), a_model()
    run = a_run(ours, AdamW(ours.parameters()), max_share=max_share, prefetch=prefetch)

    sizes = trained(run, error_of(ours))
    trained_plainly(AdamW(theirs.parameters()), error_of(theirs))

    assert max(sizes) == min(max_share, BATCH) and sum(sizes) == STEPS * BATCH
    assert run.certificate.holds and run.certificate.samples == STEPS * BATCH
    assert same(ours.parameters(), theirs.parameters())


def test_random_numbers_in_an_update_depend_on_the_seed_and_the_step_alone() -> None:
    def drawn(max_share: int) -> list[float]:
        model = a_model()
        numbers: list[float] = []

        def update() -> None:
            numbers.append(torch.rand(()).item())

        trained(a_run(model, SGD(model.parameters()), max_share=max_share, update=update), error_of(model))
        return numbers

    assert drawn(8) == drawn(3) and len(set(drawn(8))) == STEPS


def test_the_sum_stays_whole_when_its_gradients_are_written_to() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    buckets = Buckets([parameter], copies=True)
    parameter.grad = torch.full((3,), 2.0)
    buckets.collect(0, 0)
    buckets.use(0)
    parameter.grad.mul_(0.5)
    buckets.use(0)
    assert torch.equal(parameter.grad, torch.full((3,), 2.0))


def test_a_scaler_scales_and_unscales_so_that_nothing_else_sees_it() -> None:
    ours, theirs = a_model(), a_model()
    scaler = GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    run = a_run(ours, AdamW(ours.parameters()), clip_norm=0.1, scaler=scaler)
    losses: list[float] = []

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        found = error_of(ours)(inputs, targets)
        losses.append(found.item())
        return found

    trained(run, loss)
    trained_plainly(
        AdamW(theirs.parameters()), error_of(theirs), lambda: nn.utils.clip_grad_norm_(theirs.parameters(), 0.1)
    )

    assert same(ours.parameters(), theirs.parameters())
    assert run.loss == pytest.approx(losses[-1])
    assert scaler.get_scale() == 4096.0


def test_a_step_that_overflows_is_skipped_and_the_scale_goes_down() -> None:
    model = a_model()
    scaler = GradScaler("cpu", init_scale=1024.0)
    run = a_run(model, AdamW(model.parameters()), scaler=scaler)
    weights: list[Tensor] = []

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        weights.append(next(model.parameters()).detach().clone())
        return error_of(model)(inputs, targets) * (float("inf") if run.step == 1 else 1.0)

    trained(run, loss)

    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[2], weights[3])
    assert scaler.get_scale() == 512.0


def test_an_update_of_the_scripts_own_finds_unscaled_gradients() -> None:
    model = nn.Linear(4, 1, bias=False)
    scaler, optimizer = GradScaler("cpu", init_scale=1024.0), SGD(model.parameters(), lr=0.0)
    seen: list[Tensor] = []

    def update() -> None:
        assert model.weight.grad is not None
        seen.append(model.weight.grad.clone())
        scaler.step(optimizer)

    run = a_run(model, optimizer, scaler=scaler, update=update)
    trained(run, lambda inputs, _: model(torch.ones_like(inputs)).mean())

    assert all(torch.allclose(each, torch.ones(1, 4)) for each in seen) and len(seen) == STEPS
