"""The order of samples knows no world, and what a world shares out is always the whole batch, once."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tradewind.protocol.trainer import Ranges
from tradewind.sdk.data.order import Order
from tradewind.sdk.trainer.shares import count, deal, merged, missing, shares, without

worlds = st.lists(st.booleans(), min_size=1, max_size=20).filter(any)
batches = st.integers(1, 200)


def positions(ranges: Ranges) -> list[int]:
    return [at for first, last in ranges for at in range(first, last)]


@st.composite
def interrupted_steps(draw: st.DrawFn) -> tuple[int, tuple[Ranges, ...], list[bool]]:
    """A batch of which some positions are held, each by one rank, and who is active now."""
    batch = draw(batches)
    active = draw(worlds)
    owners = draw(st.lists(st.integers(-1, len(active) - 1), min_size=batch, max_size=batch))
    held = [merged(tuple((at, at + 1) for at in range(batch) if owners[at] == rank)) for rank in range(len(active))]
    return batch, tuple(held), active


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
    with pytest.raises(ValueError, match=f"step {step} has no positions"):
        Order(50, 12, seed=2).indices(step, ranges)


def test_an_empty_dataset_and_an_empty_batch_are_refused() -> None:
    for size, batch in ((0, 4), (4, 0)):
        with pytest.raises(ValueError, match="at least one of each"):
            Order(size, batch, seed=0)


@given(batch=batches, active=worlds)
def test_shares_are_contiguous_even_and_for_the_active_only(batch: int, active: list[bool]) -> None:
    given_out = shares(batch, active)
    counts = [count(ranges) for ranges, is_active in zip(given_out, active, strict=True) if is_active]
    assert positions(tuple(one for ranges in given_out for one in ranges)) == list(range(batch))
    assert all(len(ranges) <= 1 for ranges in given_out)
    assert max(counts) - min(counts) <= 1 and counts == sorted(counts, reverse=True)
    assert all(not ranges for ranges, is_active in zip(given_out, active, strict=True) if not is_active)


def test_in_a_batch_smaller_than_the_world_some_shares_are_empty() -> None:
    assert shares(2, [True, False, True, True]) == (((0, 1),), (), ((1, 2),), ())


@given(interrupted_steps())
def test_what_is_missing_and_what_is_held_are_the_batch(step: tuple[int, tuple[Ranges, ...], list[bool]]) -> None:
    batch, held, _ = step
    held_positions = [at for ranges in held for at in positions(ranges)]
    assert sorted(held_positions + positions(missing(batch, held))) == list(range(batch))


@given(interrupted_steps())
def test_dealing_completes_the_batch_without_overlap(step: tuple[int, tuple[Ranges, ...], list[bool]]) -> None:
    batch, held, active = step
    dealt = deal(batch, held, active)
    assert sorted(at for ranges in (*held, *dealt) for at in positions(ranges)) == list(range(batch))
    assert all(not ranges for ranges, is_active in zip(dealt, active, strict=True) if not is_active)
    assert dealt == deal(batch, list(held), list(active))
    assert all(one[1] < other[0] for ranges in dealt for one, other in pairwise(ranges))


@given(interrupted_steps())
def test_no_other_dealing_would_leave_the_totals_more_even(step: tuple[int, tuple[Ranges, ...], list[bool]]) -> None:
    batch, held, active = step
    dealt = deal(batch, held, active)
    totals = [count(held[rank]) + count(dealt[rank]) for rank in range(len(active)) if active[rank]]
    receivers = [count(held[rank]) + count(dealt[rank]) for rank in range(len(active)) if dealt[rank]]
    assert all(total <= min(totals) + 1 for total in receivers)


def test_those_who_hold_least_are_dealt_to_first() -> None:
    held: tuple[Ranges, ...] = (((0, 4),), (), ((4, 6),))
    assert deal(9, held, [True, True, True]) == ((), ((6, 9),), ())
    assert deal(10, held, [True, True, True]) == ((), ((6, 9),), ((9, 10),))


def test_after_a_loss_each_survivor_computes_a_part_of_the_lost_share() -> None:
    held = shares(48, [True] * 4)[:3]
    assert deal(48, held, [True] * 3) == (((36, 40),), ((40, 44),), ((44, 48),))


def test_samples_cannot_be_dealt_when_nobody_is_active() -> None:
    with pytest.raises(ValueError, match="no rank is active"):
        shares(4, [False, False])
    assert deal(4, (((0, 4),),), [False]) == ((),)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=10))
def test_what_is_merged_holds_each_position_once_in_the_fewest_ranges(pieces: list[tuple[int, int]]) -> None:
    ranges = tuple((first, first + length) for first, length in pieces)
    joined = merged(ranges)
    assert positions(joined) == sorted(set(positions(ranges)))
    assert all(one[1] < other[0] for one, other in pairwise(joined))


@given(interrupted_steps(), st.data())
def test_without_leaves_exactly_what_was_not_taken(
    step: tuple[int, tuple[Ranges, ...], list[bool]], data: st.DataObject
) -> None:
    _, held, _ = step
    ranges = merged(tuple(each for own in held for each in own))
    taken = held[data.draw(st.integers(0, len(held) - 1))]
    assert positions(without(ranges, taken)) == [at for at in positions(ranges) if at not in set(positions(taken))]
