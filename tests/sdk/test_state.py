"""The training state: bit for bit the same after every way it takes, refused in one sentence where it does not fit."""

import random
from collections.abc import Mapping
from typing import Any

import numpy
import pytest
import torch
from torch import autograd, distributed, nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR, OneCycleLR

from tests.sdk.states import (
    MakeOptimizer,
    Rank,
    a_model,
    adam,
    bytes_of,
    differences,
    everything,
    fused_adam,
    hand_over,
    momentum,
    two_groups,
)
from tradewind.sdk.layout import shard_bounds
from tradewind.sdk.random_states import RandomStates
from tradewind.sdk.state import Staging, StateDoesNotFit, Stateful, TrainingState

OPTIMIZERS = [momentum, adam, fused_adam, two_groups]


class Scaler:
    """Like a gradient scaler: its numbers are partly tensors."""

    def __init__(self) -> None:
        self.scale = torch.tensor(65536.0)
        self.growth = 0

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self.scale, "growth": self.growth}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.scale = state_dict["scale"]
        self.growth = state_dict["growth"]


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS)
@pytest.mark.parametrize("of", [1, 3])
def test_a_rank_that_never_stepped_gets_the_whole_state_and_goes_on_as_its_giver(
    make_optimizer: MakeOptimizer, of: int
) -> None:
    giver, joiner = Rank(1, make_optimizer).steps(10, 11), Rank(2, make_optimizer)
    giver.forward(3)

    hand_over(giver.state, joiner.state, of)

    assert differences(giver.state, joiner.state) == []
    giver.steps(12, 13)
    joiner.steps(12, 13)
    assert differences(giver.state, joiner.state) == []


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
    giver, joiner = Rank(1), Rank(2)
    first = next(giver.model.parameters())
    first.grad = torch.ones_like(first)
    giver.optimizer.step()

    hand_over(giver.state, joiner.state)

    assert [name for name, _ in joiner.state.tensors() if name.startswith("optimizer")] == [
        "optimizer.0.exp_avg",
        "optimizer.0.exp_avg_sq",
        "optimizer.0.step",
    ]
    assert differences(giver.state, joiner.state) == []


def test_the_order_of_tensors_is_the_models_then_the_optimizers_by_parameter_and_key() -> None:
    rank = Rank(1, momentum).steps(10)

    assert [name for name, _ in rank.state.tensors()] == [
        *("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"),
        *(f"optimizer.{index}.momentum_buffer" for index in range(6)),
    ]
    assert [name for name, _ in rank.state.buffers()] == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert rank.state.nbytes() == sum(tensor.nbytes for _, tensor in rank.state.tensors())


@pytest.mark.parametrize("of", [1, 2, 3, 7, 1000])
def test_shards_are_the_whole_once(of: int) -> None:
    rank = Rank(1).steps(10)

    assert bytes_of(rank.state, of) == bytes_of(rank.state)
    assert sum(last - first for first, last in (shard_bounds(k, of, 1234) for k in range(of))) == 1234


def test_a_copy_follows_tensors_that_were_replaced() -> None:
    rank, joiner = Rank(1).steps(10), Rank(2)
    bytes_of(rank.state)
    rank.state.fingerprint()
    first = next(rank.model.parameters())
    rank.optimizer.state[first]["exp_avg"] = rank.optimizer.state[first]["exp_avg"] * 2
    first.data = first.data * 3

    hand_over(rank.state, joiner.state)

    assert differences(rank.state, joiner.state) == []
    assert rank.state.fingerprint() == joiner.state.fingerprint()


def test_bf16_parameters_keep_the_dtypes_of_their_optimizers_state() -> None:
    giver, joiner = (Rank(seed, momentum, a_model(seed, torch.bfloat16)) for seed in (1, 2))
    giver.step(10)
    first = next(giver.model.parameters())
    giver.optimizer.state[first]["momentum_buffer"] = torch.randn(first.shape, dtype=torch.float64)

    hand_over(giver.state, joiner.state, of=3)

    assert differences(giver.state, joiner.state) == []
    assert dict(joiner.state.tensors())["optimizer.0.momentum_buffer"].dtype == torch.float64


class Odd(nn.Module):
    """One element, no element, tied weights, a matrix that does not lie in order, and a buffer that is no state."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.scale = nn.Parameter(torch.randn(()))
        self.nothing = nn.Parameter(torch.randn(0, 4))
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight
        self.turned = nn.Parameter(torch.randn(3, 5).t())
        self.picture = nn.utils.convert_conv2d_weight_memory_format(nn.Conv2d(3, 2, 3), torch.channels_last)
        self.register_buffer("mask", torch.rand(3, 3) > 0.5)
        self.register_buffer("scratch", torch.rand(seed), persistent=False)
        self.seen = seed

    def get_extra_state(self) -> dict[str, int]:
        return {"seen": self.seen}

    def set_extra_state(self, state: Any) -> None:
        self.seen = state["seen"]


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS[:3])
def test_tensors_of_every_shape_survive_and_shared_ones_are_counted_once(make_optimizer: MakeOptimizer) -> None:
    giver, joiner = Rank(1, make_optimizer, Odd(1)).steps(10, 11), Rank(2, make_optimizer, Odd(2))

    hand_over(giver.state, joiner.state, of=4)

    assert differences(giver.state, joiner.state) == []
    assert [name for name, _ in giver.state.tensors() if "weight" in name] == ["embedding.weight", "picture.weight"]
    assert [name for name, _ in giver.state.buffers()] == ["mask"]
    assert isinstance(joiner.model, Odd)
    assert joiner.model.seen == 1
    assert differences(giver.steps(12).state, joiner.steps(12).state) == []
    assert giver.state.fingerprint() == joiner.state.fingerprint()


def test_parameters_that_only_the_optimizer_has_survive_too() -> None:
    outside = [torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)]
    giver = Rank(1, lambda model: Adam([*model.parameters(), outside[0]]))
    joiner = Rank(2, lambda model: Adam([*model.parameters(), outside[1]]))
    outside[0].grad = torch.ones(3)
    giver.step(10)

    hand_over(giver.state, joiner.state)

    assert torch.equal(outside[0], outside[1])
    assert differences(giver.state, joiner.state) == []


def schedules(optimizer: Optimizer) -> Mapping[str, Stateful]:
    return {
        "warm": OneCycleLR(optimizer, max_lr=0.5, total_steps=20),
        "steps": MultiStepLR(optimizer, milestones=[2, 4]),
        "scaler": Scaler(),
    }


def test_the_learning_rate_its_schedule_and_everything_with_a_state_survive() -> None:
    giver, joiner = Rank(1, two_groups, others=schedules), Rank(2, two_groups, others=schedules)
    scaler, scaler_there = giver.others["scaler"], joiner.others["scaler"]
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
    hand_over(giver.state, joiner.state)

    assert (float(scaler_there.scale), scaler_there.growth) == (7.0, 3)
    for seed in (13, 14, 15):
        advance(giver, seed)
        advance(joiner, seed)
    rates = [[group["lr"] for group in rank.optimizer.param_groups] for rank in (giver, joiner)]
    assert rates[0] == rates[1]
    assert differences(giver.state, joiner.state) == []


def test_a_learning_rate_that_is_a_tensor_stays_the_same_tensor() -> None:
    def tensor_rate(model: nn.Module) -> Optimizer:
        return Adam(model.parameters(), lr=torch.tensor(0.5), foreach=False, capturable=False)

    giver, joiner = Rank(1, tensor_rate), Rank(2, tensor_rate)
    rate = joiner.optimizer.param_groups[0]["lr"]
    giver.optimizer.param_groups[0]["lr"].fill_(0.25)

    hand_over(giver.state, joiner.state)

    assert joiner.optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == 0.25


def test_random_states_survive_if_they_are_among_the_others() -> None:
    rank = Rank(1, others=lambda optimizer: {"random": RandomStates()})
    header, data = rank.state.header(), bytes_of(rank.state)
    drawn = torch.rand(3).tolist(), random.random(), random.gauss(), numpy.random.rand(3).tolist()

    rank.state.load(header, data)

    assert (torch.rand(3).tolist(), random.random(), random.gauss(), numpy.random.rand(3).tolist()) == drawn


def test_a_model_in_ddp_has_the_state_of_the_model_inside() -> None:
    bare = Rank(1).steps(10)
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        wrapped = Rank(2, model=DistributedDataParallel(a_model(2)))
        hand_over(bare.state, wrapped.state)
        assert differences(bare.state, wrapped.state) == []
    finally:
        distributed.destroy_process_group()


def test_the_header_has_the_buffers_of_its_moment() -> None:
    giver, joiner = Rank(1).steps(10), Rank(2)
    giver.forward(3)
    header, then = giver.state.header(), everything(giver.state)

    giver.forward(4)
    joiner.state.load(header, bytes_of(giver.state))

    assert torch.equal(dict(joiner.state.buffers())["1.running_mean"], then["1.running_mean"])
    assert dict(joiner.state.buffers())["1.num_batches_tracked"].item() == 1


@pytest.mark.parametrize("make_optimizer", [*OPTIMIZERS, lambda model: SGD(model.parameters(), lr=1e-3)])
def test_states_one_step_apart_have_different_fingerprints_and_equal_ones_the_same(
    make_optimizer: MakeOptimizer,
) -> None:
    one, other = Rank(1, make_optimizer), Rank(1, make_optimizer)
    seen = set()
    for seed in range(10, 15):
        seen.add(one.state.fingerprint())
        assert one.state.fingerprint() == other.state.fingerprint()
        one.step(seed)
        assert one.state.fingerprint() != other.state.fingerprint()
        other.step(seed)
    assert len(seen) == 5


def test_a_forward_pass_does_not_change_the_fingerprint_because_buffers_differ_between_ranks() -> None:
    rank = Rank(1).steps(10)
    before = rank.state.fingerprint()

    rank.forward(3)

    assert rank.state.fingerprint() == before


def test_a_fingerprint_looks_at_all_of_a_large_tensor() -> None:
    rank = Rank(1, momentum, nn.Linear(1000, 100, bias=False))
    before = rank.state.fingerprint()
    with torch.no_grad():
        next(rank.model.parameters())[50:] += 1

    assert rank.state.fingerprint() != before


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS)
def test_a_checkpoint_is_untouched_by_later_steps_and_restores_its_moment(make_optimizer: MakeOptimizer) -> None:
    rank = Rank(1, make_optimizer, Odd(1)).steps(10)
    payload, then = rank.state.payload(), everything(rank.state)
    rank.steps(11, 12)

    restored = Rank(2, make_optimizer, Odd(2))
    restored.state.restore(payload)

    assert sorted(then) == sorted(everything(restored.state))
    assert all(torch.equal(tensor, then[name]) for name, tensor in everything(restored.state).items())
    assert differences(rank.state, restored.steps(11, 12).state) == []


def test_a_checkpoint_can_be_written_and_read_safely_and_fits_the_bare_model(tmp_path: Any) -> None:
    rank = Rank(1, adam, Odd(1)).steps(10)
    torch.save(rank.state.payload(), tmp_path / "checkpoint")
    payload = torch.load(tmp_path / "checkpoint", weights_only=True)

    bare = Odd(2)
    bare.load_state_dict(payload["model"] | {"_extra_state": {"seen": 1}})

    assert torch.equal(bare.head.weight, dict(rank.state.tensors())["embedding.weight"])


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


def test_staging_is_used_again_for_any_smaller_shard() -> None:
    rank = Rank(1).steps(10)
    staging = Staging(rank.state.nbytes())
    whole = bytes(rank.state.copy_shard(0, 1, staging))

    last = bytes(rank.state.copy_shard(2, 3, staging))

    assert whole.endswith(last)
    assert len(last) == len(whole) - 2 * len(whole) // 3


def test_read_only_bytes_can_be_loaded(recwarn: pytest.WarningsRecorder) -> None:
    giver, joiner = Rank(1).steps(10), Rank(2)

    joiner.state.load(memoryview(giver.state.header()), bytes(bytes_of(giver.state)))

    assert differences(giver.state, joiner.state) == []
    assert not recwarn.list


def test_gradients_flow_through_the_loaded_parameters() -> None:
    giver, joiner = Rank(1).steps(10), Rank(2)
    hand_over(giver.state, joiner.state)

    loss = joiner.model(torch.randn(4, 5)).square().mean()
    autograd.backward(loss)

    assert all(parameter.grad is not None for parameter in joiner.model.parameters())
