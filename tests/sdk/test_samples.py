"""The order of samples does not depend on the world."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.sdk.test_shares import batches, worlds
from tradewind.protocol.trainer import Ranges
from tradewind.sdk.data.order import Order
from tradewind.sdk.trainer.shares import shares


@given(size=st.integers(1, 60), batch=st.integers(1, 150), seed=st.integers(), shuffle=st.booleans())
def test_the_steps_walk_through_every_epoch_once(size: int, batch: int, seed: int, shuffle: bool) -> None:
    order = Order(size, batch, seed, shuffle)
    row = [index for step in range(4 * size // batch + 1) for index in order.indices(step)]
    epochs = [row[begin : begin + size] for begin in range(0, len(row) - size + 1, size)]
    assert epochs and all(sorted(epoch) == list(range(size)) for epoch in epochs)


@given(size=st.integers(1, 60), batch=batches, seed=st.integers(), step=st.integers(0, 10**6), active=worlds)
def test_a_step_takes_the_same_samples_however_many_share_it(
    size: int, batch: int, seed: int, step: int, active: list[bool]
) -> None:
    alone = Order(size, batch, seed).indices(step)
    shared = [Order(size, batch, seed).indices(step, ranges) for ranges in shares(batch, active)]
    assert [index for share in shared for index in share] == alone


def test_each_epoch_and_each_seed_has_its_own_order() -> None:
    first, second = (Order(100, 100, seed=3).indices(epoch) for epoch in range(2))
    assert first != second
    assert first != Order(100, 100, seed=4).indices(0)
    assert first == Order(100, 100, seed=3).indices(0)


def test_the_order_is_the_same_in_every_release() -> None:
    assert Order(8, 4, seed=0).indices(0) + Order(8, 4, seed=0).indices(5) == [7, 5, 3, 6, 2, 3, 5, 0]


def test_the_scripts_own_random_numbers_are_left_alone() -> None:
    before = torch.random.get_rng_state()
    Order(1000, 10, seed=1).indices(500)
    assert torch.equal(before, torch.random.get_rng_state())


def test_without_shuffling_the_dataset_is_read_from_front_to_back() -> None:
    assert Order(5, 3, seed=9, shuffle=False).indices(1) == [3, 4, 0]


def test_only_the_positions_asked_for_are_given_in_the_order_asked_for() -> None:
    order = Order(50, 12, seed=2)
    whole = order.indices(7)
    assert order.indices(7, ((9, 12), (0, 2))) == whole[9:12] + whole[0:2]
    assert order.indices(7, ()) == []


@pytest.mark.parametrize(("step", "ranges"), [(-1, None), (0, ((0, 13),)), (0, ((-1, 2),)), (0, ((3, 2),))])
def test_positions_that_the_batch_does_not_have_are_refused(step: int, ranges: Ranges | None) -> None:
    with pytest.raises(ValueError, match=rf" 12 .*step {step}\)"):
        Order(50, 12, seed=2).indices(step, ranges)


def test_an_empty_dataset_and_an_empty_batch_are_refused() -> None:
    for size, batch in ((0, 4), (4, 0)):
        with pytest.raises(ValueError, match=rf"\({batch}\).*\({size}\)"):
            Order(size, batch, seed=0)
