"""The control words of a step: what all ranks read from the sum of what each rank writes."""

import math
from functools import reduce
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tradewind.sdk import control_words
from tradewind.sdk.certificate import Digest
from tradewind.sdk.control_words import Agreed, Own


def own(
    ready: int = 0, indices: range = range(0), loss_sum: float = 0.0, active: bool = True, step: int | None = None
) -> Own:
    return Own(ready=ready, digest=Digest.of(indices), loss_sum=loss_sum, active=active, step=step)


def summed(own_words: list[Own], room: int | None = None) -> Agreed:
    """Writes the words of all ranks, adds them up in float32, and reads the result."""
    written: list[Tensor] = []
    for rank, each in enumerate(own_words):
        one = torch.full((room or control_words.size(len(own_words)),), math.nan)
        control_words.write(one, each, rank)
        written.append(one)
    return control_words.read(reduce(torch.add, written), len(own_words))


ready_worlds = st.lists(st.integers(0, 4), min_size=1, max_size=12) | st.tuples(
    st.integers(0, 64), st.integers(1, 40)
).map(lambda same: [same[0]] * same[1])


@given(ready=ready_worlds, current=st.integers(1, 10**6))
def test_a_switch_is_agreed_exactly_when_all_are_ready_for_the_same_world(ready: list[int], current: int) -> None:
    agreed = summed([own(ready=each) for each in ready]).ready_generation(current, len(ready))
    assert agreed == (current + ready[0] if ready[0] > 0 and len(set(ready)) == 1 else None)


@given(world_size=st.integers(1, 1024), ready=st.integers(1, 64), odd_one=st.integers(0, 64))
def test_agreement_is_exact_in_the_largest_world(world_size: int, ready: int, odd_one: int) -> None:
    same = torch.tensor([float(ready), float(ready * ready)]).repeat(world_size, 1)
    odd = same.clone()
    odd[-1] = torch.tensor([float(odd_one), float(odd_one * odd_one)])
    for reported, all_same in ((same, True), (odd, odd_one == ready)):
        total, squares = reduce(torch.add, reported).tolist()
        agreed = Agreed(int(total), int(squares), 0, Digest(), 0.0, ())
        only_odd = world_size == 1 and not all_same
        expected = 5 + ready if all_same else (5 + odd_one if only_odd and odd_one else None)
        assert agreed.ready_generation(5, world_size) == expected


def test_worlds_too_far_ahead_are_never_agreed_on_in_band() -> None:
    assert summed([own(ready=64)] * 3).ready_generation(1, 3) == 65
    assert summed([own(ready=65), own(ready=66)]).ready_generation(1, 2) is None
    assert summed([own(ready=65)] * 3).ready_generation(1, 3) is None
    assert summed([own(ready=-1)] * 3).ready_generation(1, 3) is None


@given(cuts=st.lists(st.integers(0, 500), min_size=1, max_size=12), step=st.integers(0, 2**40))
def test_the_samples_of_all_ranks_and_the_step_arrive_exactly(cuts: list[int], step: int) -> None:
    borders = [0, *sorted(cuts)]
    reported = [own(indices=range(*pair)) for pair in pairwise(borders)]
    reported[0] = own(indices=range(*borders[:2]), step=step)
    agreed = summed(reported)
    assert agreed.digest == Digest.of(range(borders[-1]))
    assert agreed.samples == borders[-1]
    assert agreed.step == step


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_everybody_sees_who_is_active(active: list[bool]) -> None:
    assert summed([own(active=each) for each in active]).active == tuple(active)


def test_room_for_larger_worlds_is_left_empty() -> None:
    reported = [own(ready=2, indices=range(4), active=rank != 1) for rank in range(3)]
    assert summed(reported, room=control_words.MOST) == summed(reported)
    assert control_words.size(1024) == control_words.MOST


def test_the_loss_is_the_mean_over_all_samples() -> None:
    agreed = summed([own(indices=range(3), loss_sum=3 * 2.0), own(indices=range(3, 4), loss_sum=6.0)])
    assert agreed.loss == 3.0
    assert summed([own()]).loss is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_everybody_knows_whose_loss_is_not_finite_and_it_spoils_nothing_else(bad: float) -> None:
    reported = [own(ready=1, indices=range(2)), own(ready=1, indices=range(2, 4), loss_sum=bad), own(ready=1)]
    agreed = summed(reported)
    assert agreed.loss is not None and math.isnan(agreed.loss) and math.isfinite(agreed.loss_sum)
    assert agreed.bad_loss == (1,) and agreed.bad_gradient == () and not agreed.is_finite
    assert agreed.ready_generation(7, 3) == 8 and agreed.digest == Digest.of(range(4)) and all(agreed.active)


@given(flags=st.lists(st.tuples(*(st.booleans(),) * 5), min_size=1, max_size=40))
def test_the_flags_of_a_rank_are_distinct(flags: list[tuple[bool, ...]]) -> None:
    written: list[Tensor] = []
    for rank, (active, bad_loss, bad_gradient, stops, over) in enumerate(flags):
        one = torch.full((control_words.MOST,), math.nan)
        loss_sum = math.nan if bad_loss else 1.0
        said = Own(0, Digest(), loss_sum, active, None, stops, over)
        control_words.write(one, said, rank, torch.tensor(float(bad_gradient)))
        written.append(one)
    agreed = control_words.read(reduce(torch.add, written), control_words.RANKS)
    assert agreed.active[: len(flags)] == tuple(active for active, *_ in flags) and not any(agreed.active[len(flags) :])
    assert agreed.bad_loss == tuple(rank for rank, each in enumerate(flags) if each[1])
    assert agreed.bad_gradient == tuple(rank for rank, each in enumerate(flags) if each[2])
    assert agreed.stops == any(each[3] for each in flags) and agreed.over == any(each[4] for each in flags)


def test_a_tail_that_could_not_be_summed_exactly_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not torch[.]bfloat16"):
        control_words.write(torch.zeros(control_words.size(2), dtype=torch.bfloat16), own(), rank=0)


def test_a_gradient_that_is_not_finite_is_the_same_flag_from_the_host_and_from_a_device() -> None:
    known, on_device = torch.zeros(control_words.MOST), torch.zeros(control_words.MOST)
    control_words.write(known, own(step=7), 2, bad_gradient=True)
    control_words.write(on_device, own(step=7), 2, bad_gradient=torch.tensor(True))
    assert torch.equal(known, on_device) and control_words.read(known, 3).bad_gradient == (2,)
