"""The training state of many kinds of models and optimizers: the same to the last bit after a transfer."""

from collections.abc import Mapping

import pytest
import torch
from torch import autograd, distributed, nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR, OneCycleLR

from tests.sdk.states import (
    OPTIMIZERS,
    MakeOptimizer,
    Odd,
    Rank,
    Scaler,
    a_model,
    differences,
    hand_over,
    momentum,
    two_groups,
)
from tradewind.sdk.training_state.training_state import Stateful


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS)
@pytest.mark.parametrize("of", [1, 3])
def test_a_rank_that_never_stepped_gets_the_whole_state_and_continues_as_its_giver(
    make_optimizer: MakeOptimizer, of: int
) -> None:
    giver, joining_rank = Rank(1, make_optimizer).steps(10, 11), Rank(2, make_optimizer)
    giver.forward(3)

    hand_over(giver.state, joining_rank.state, of)

    assert differences(giver.state, joining_rank.state) == []
    giver.steps(12, 13)
    joining_rank.steps(12, 13)
    assert differences(giver.state, joining_rank.state) == []


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS)
def test_a_rank_that_is_behind_keeps_its_tensors_and_gets_their_values(make_optimizer: MakeOptimizer) -> None:
    giver, behind = Rank(1, make_optimizer).steps(10, 11, 12), Rank(1, make_optimizer).steps(10)
    before = {name: id(tensor) for name, tensor in behind.state.tensors() + behind.state.buffers()}

    hand_over(giver.state, behind.state)

    assert differences(giver.state, behind.state) == []
    assert {name: id(tensor) for name, tensor in behind.state.tensors() + behind.state.buffers()} == before


def test_a_state_from_before_the_first_step_takes_the_optimizers_state_away() -> None:
    giver, ahead = Rank(1), Rank(2).steps(10)

    hand_over(giver.state, ahead.state)

    assert differences(giver.state, ahead.state) == []
    assert not ahead.optimizer.state
    assert differences(giver.steps(11).state, ahead.steps(11).state) == []


def test_parameters_without_a_gradient_have_no_state_on_either_side() -> None:
    giver, joining_rank = Rank(1), Rank(2)
    first = next(giver.model.parameters())
    first.grad = torch.ones_like(first)
    giver.optimizer.step()

    hand_over(giver.state, joining_rank.state)

    assert [name for name, _ in joining_rank.state.tensors() if name.startswith("optimizer")] == [
        "optimizer.0.exp_avg",
        "optimizer.0.exp_avg_sq",
        "optimizer.0.step",
    ]
    assert differences(giver.state, joining_rank.state) == []


def test_bf16_parameters_keep_the_dtypes_of_their_optimizers_state() -> None:
    giver, joining_rank = (Rank(seed, momentum, a_model(seed, torch.bfloat16)) for seed in (1, 2))
    giver.step(10)
    first = next(giver.model.parameters())
    giver.optimizer.state[first]["momentum_buffer"] = torch.randn(first.shape, dtype=torch.float64)

    hand_over(giver.state, joining_rank.state, of=3)

    assert differences(giver.state, joining_rank.state) == []
    assert dict(joining_rank.state.tensors())["optimizer.0.momentum_buffer"].dtype == torch.float64


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS[:3])
def test_tensors_of_every_shape_survive_and_shared_ones_are_counted_once(make_optimizer: MakeOptimizer) -> None:
    giver, joining_rank = Rank(1, make_optimizer, Odd(1)).steps(10, 11), Rank(2, make_optimizer, Odd(2))

    hand_over(giver.state, joining_rank.state, of=4)

    assert differences(giver.state, joining_rank.state) == []
    assert [name for name, _ in giver.state.tensors() if "weight" in name] == ["embedding.weight", "picture.weight"]
    assert [name for name, _ in giver.state.buffers()] == ["mask"]
    assert isinstance(joining_rank.model, Odd)
    assert joining_rank.model.seen == 1
    assert differences(giver.steps(12).state, joining_rank.steps(12).state) == []
    assert giver.state.fingerprint() == joining_rank.state.fingerprint()


def test_parameters_that_only_the_optimizer_has_survive_too() -> None:
    outside = [torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)]
    giver = Rank(1, lambda model: Adam([*model.parameters(), outside[0]]))
    joining_rank = Rank(2, lambda model: Adam([*model.parameters(), outside[1]]))
    outside[0].grad = torch.ones(3)
    giver.step(10)

    hand_over(giver.state, joining_rank.state)

    assert torch.equal(outside[0], outside[1])
    assert differences(giver.state, joining_rank.state) == []


def schedules(optimizer: Optimizer) -> Mapping[str, Stateful]:
    return {
        "warm": OneCycleLR(optimizer, max_lr=0.5, total_steps=20),
        "steps": MultiStepLR(optimizer, milestones=[2, 4]),
        "scaler": Scaler(),
    }


def test_the_learning_rate_its_schedule_and_everything_with_a_state_survive() -> None:
    giver, joining_rank = Rank(1, two_groups, others=schedules), Rank(2, two_groups, others=schedules)
    scaler, scaler_there = giver.others["scaler"], joining_rank.others["scaler"]
    assert isinstance(scaler, Scaler)
    assert isinstance(scaler_there, Scaler)
    scaler.scale, scaler.growth = torch.tensor(7.0), 3

    def advance(rank: Rank, seed: int) -> None:
        rank.step(seed)
        for name in ("warm", "steps"):
            schedule = rank.others[name]
            assert isinstance(schedule, LRScheduler)
            schedule.step()

    for seed in (10, 11, 12):
        advance(giver, seed)
    hand_over(giver.state, joining_rank.state)

    assert (float(scaler_there.scale), scaler_there.growth) == (7.0, 3)
    for seed in (13, 14, 15):
        advance(giver, seed)
        advance(joining_rank, seed)
    rates = [[group["lr"] for group in rank.optimizer.param_groups] for rank in (giver, joining_rank)]
    assert rates[0] == rates[1]
    assert differences(giver.state, joining_rank.state) == []


def test_a_learning_rate_that_is_a_tensor_stays_the_same_tensor() -> None:
    def tensor_rate(model: nn.Module) -> Optimizer:
        return Adam(model.parameters(), lr=torch.tensor(0.5), foreach=False, capturable=False)

    giver, joining_rank = Rank(1, tensor_rate), Rank(2, tensor_rate)
    rate = joining_rank.optimizer.param_groups[0]["lr"]
    giver.optimizer.param_groups[0]["lr"].fill_(0.25)

    hand_over(giver.state, joining_rank.state)

    assert joining_rank.optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == 0.25


def test_a_model_in_ddp_has_the_state_of_the_model_inside() -> None:
    bare = Rank(1).steps(10)
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        wrapped = Rank(2, model=DistributedDataParallel(a_model(2)))
        hand_over(bare.state, wrapped.state)
        assert differences(bare.state, wrapped.state) == []
    finally:
        distributed.destroy_process_group()


def test_gradients_flow_through_the_loaded_parameters() -> None:
    giver, joining_rank = Rank(1).steps(10), Rank(2)
    hand_over(giver.state, joining_rank.state)

    loss = joining_rank.model(torch.randn(4, 5)).square().mean()
    autograd.backward(loss)

    assert all(parameter.grad is not None for parameter in joining_rank.model.parameters())
