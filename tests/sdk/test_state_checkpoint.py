"""The training state in a checkpoint, and its fingerprint."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

from tests.sdk.states import OPTIMIZERS, MakeOptimizer, Odd, Rank, adam, differences, everything, momentum


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
