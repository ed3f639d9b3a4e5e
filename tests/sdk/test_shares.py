"""The shares of a world are always the whole batch, once."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.protocol.trainer import Ranges
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
    with pytest.raises(ValueError, match=r" 4 samples$"):
        shares(4, [False, False])
    assert deal(4, (((0, 4),),), [False]) == ((),)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=10))
def test_what_is_merged_holds_each_position_once_in_the_fewest_ranges(pieces: list[tuple[int, int]]) -> None:
    ranges = tuple((first, first + length) for first, length in pieces)
    joined = merged(ranges)
    assert positions(joined) == sorted(set(positions(ranges)))
    assert all(one[1] < other[0] for one, other in pairwise(joined))


@given(interrupted_steps(), st.data())
def test_without_removes_exactly_the_given_positions(
    step: tuple[int, tuple[Ranges, ...], list[bool]], data: st.DataObject
) -> None:
    _, held, _ = step
    ranges = merged(tuple(each for own in held for each in own))
    taken = held[data.draw(st.integers(0, len(held) - 1))]
    assert positions(without(ranges, taken)) == [at for at in positions(ranges) if at not in set(positions(taken))]
