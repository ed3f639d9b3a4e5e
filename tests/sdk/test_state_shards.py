"""The training state as bytes: in which order, in which parts, of which moment."""

import pytest
import torch

from tests.sdk.states import Rank, bytes_of, differences, everything, hand_over, momentum
from tradewind.sdk.training_state.layout import shard_bounds
from tradewind.sdk.training_state.tensor_bytes import Staging


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
    rank, joining_rank = Rank(1).steps(10), Rank(2)
    bytes_of(rank.state)
    rank.state.fingerprint()
    first = next(rank.model.parameters())
    rank.optimizer.state[first]["exp_avg"] = rank.optimizer.state[first]["exp_avg"] * 2
    first.data = first.data * 3

    hand_over(rank.state, joining_rank.state)

    assert differences(rank.state, joining_rank.state) == []
    assert rank.state.fingerprint() == joining_rank.state.fingerprint()


def test_the_header_has_the_buffers_of_its_moment() -> None:
    giver, joining_rank = Rank(1).steps(10), Rank(2)
    giver.forward(3)
    header, then = giver.state.header(), everything(giver.state)

    giver.forward(4)
    joining_rank.state.load(header, bytes_of(giver.state))

    assert torch.equal(dict(joining_rank.state.buffers())["1.running_mean"], then["1.running_mean"])
    assert dict(joining_rank.state.buffers())["1.num_batches_tracked"].item() == 1


def test_staging_is_used_again_for_any_smaller_shard() -> None:
    rank = Rank(1).steps(10)
    staging = Staging(rank.state.nbytes())
    whole = bytes(rank.state.copy_shard(0, 1, staging))

    last = bytes(rank.state.copy_shard(2, 3, staging))

    assert whole.endswith(last)
    assert len(last) == len(whole) - 2 * len(whole) // 3


def test_read_only_bytes_can_be_loaded(recwarn: pytest.WarningsRecorder) -> None:
    giver, joining_rank = Rank(1).steps(10), Rank(2)

    joining_rank.state.load(memoryview(giver.state.header()), bytes(bytes_of(giver.state)))

    assert differences(giver.state, joining_rank.state) == []
    assert not recwarn.list
