"""The certificate finds each fault in the samples of a step; changes of the world are no faults."""

import json
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.sdk.texts import numbers
from tradewind.sdk.certificate import Certificate, Digest, Life
from tradewind.sdk.data.order import Order
from tradewind.sdk.trainer.shares import shares

BATCH = 48
ORDER = Order(size=1000, batch=BATCH, seed=5)
Reads = list[list[int]]
"""The indices that each rank read in one step, by rank."""

worlds = st.lists(st.booleans(), min_size=2, max_size=9).filter(lambda active: sum(active) >= 2)
index_lists = st.lists(st.integers(0, 2**40), max_size=60)


def reads(step: int, active: list[bool]) -> Reads:
    return [ORDER.indices(step, ranges) for ranges in shares(BATCH, active)]


def summed(read: Reads) -> Digest:
    return sum((Digest.of(indices) for indices in read), Digest())


def expected(step: int) -> Digest:
    return Digest.of(ORDER.indices(step))


def a_run(steps: range, certificate: Certificate | None = None) -> Certificate:
    certificate = certificate or Certificate()
    for step in steps:
        certificate.check(step, summed(reads(step, [True] * 4)), expected(step))
    return certificate


def a_run_with_one_bad_step(spoil: Callable[[Reads], object], at: int = 3) -> Certificate:
    certificate = Certificate()
    for step in range(6):
        read = reads(step, [True] * 4)
        if step == at:
            spoil(read)
        assert certificate.check(step, summed(read), expected(step)) is (step != at)
    return certificate


@given(step=st.integers(0, 1000), changes=st.lists(worlds, min_size=1, max_size=5))
def test_a_run_through_any_worlds_loses_and_repeats_nothing(step: int, changes: list[list[bool]]) -> None:
    certificate = Certificate(due=step, counted_to=step, covers_from=step)
    for number, active in enumerate(changes):
        assert certificate.check(step + number, summed(reads(step + number, active)), expected(step + number))
    assert certificate.holds and certificate.first_bad is None
    assert (certificate.steps, certificate.samples) == (len(changes), BATCH * len(changes))


@given(step=st.integers(0, 1000), active=worlds, data=st.data())
def test_a_share_that_is_dropped_repeated_or_exchanged_is_found(
    step: int, active: list[bool], data: st.DataObject
) -> None:
    read = reads(step, active)
    full = [rank for rank, indices in enumerate(read) if indices]
    rank = data.draw(st.sampled_from(full))
    other = data.draw(st.sampled_from([each for each in full if each != rank]))
    fault = data.draw(st.sampled_from(["dropped", "repeated", "another rank's", "another step's"]))
    before = len(read[rank])
    match fault:
        case "dropped":
            read[rank] = []
        case "repeated":
            read[rank] = read[rank] * 2
        case "another rank's":
            read[rank] = read[other]
        case _:
            read[rank] = ORDER.indices(step + 1, ((0, before),))
    certificate = Certificate(due=step, counted_to=step)
    assert not certificate.check(step, summed(read), expected(step))
    assert not certificate.holds and certificate.first_bad == step
    assert certificate.lost == (before if fault == "dropped" else max(0, before - len(read[rank])))
    assert certificate.repeated == max(0, len(read[rank]) - before)
    assert certificate.wrong == (len(read[rank]) == before)


@given(indices=st.lists(st.integers(0, 2**40), min_size=1, max_size=60), data=st.data())
def test_one_sample_in_place_of_another_is_found(indices: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(indices) - 1))
    other = data.draw(st.integers(0, 2**40).filter(lambda index: index != indices[at]))
    assert not Digest.of([*indices[:at], other, *indices[at + 1 :]]).matches(Digest.of(indices))


@given(indices=index_lists, cut=st.integers(0, 60))
def test_digests_add_up_in_any_order_and_any_split(indices: list[int], cut: int) -> None:
    assert Digest.of(indices[cut:]) + Digest.of(indices[:cut]) == Digest.of(indices[::-1])


@given(first=st.integers(0, 2**62), count=st.integers(0, 300), stride=st.integers(1, 2**40))
def test_many_indices_at_once_are_mixed_like_each_of_them(first: int, count: int, stride: int) -> None:
    indices = [first + number * stride for number in range(count)]
    assert Digest.of(indices) == sum((Digest.of([index]) for index in indices), Digest())


@given(st.lists(index_lists, min_size=1, max_size=30))
def test_lanes_that_were_added_as_floats_are_the_digest_of_all(ranks: list[list[int]]) -> None:
    lanes = torch.zeros(4, dtype=torch.float32)
    for indices in ranks:
        lanes += torch.tensor(Digest.of(indices).lanes(), dtype=torch.float32)
    assert Digest.from_lanes(sum(map(len, ranks)), lanes.tolist()) == summed(ranks)


def test_the_largest_lanes_of_4096_ranks_add_up_exactly_in_float32() -> None:
    largest = Digest(1, 2**48 - 1)
    lanes = torch.tensor(largest.lanes(), dtype=torch.float32).repeat(4096, 1).cumsum(0)[-1]
    assert Digest.from_lanes(4096, lanes.tolist()) == Digest(4096, 4096 * largest.mix % 2**48)


def test_no_two_indices_of_a_dataset_are_mixed_to_the_same_number() -> None:
    digests = {Digest.of([index]).mix for index in range(20_000)}
    assert len(digests) == 20_000
    ones = sum(mix.bit_count() for mix in digests) / (20_000 * 48)
    assert 0.49 < ones < 0.51


def test_digests_stay_the_same_from_one_release_to_the_next() -> None:
    """Ranks of a job compare digests, and checkpoints outlive releases."""
    assert Digest.of(range(48)) == Digest(48, 0x2C8A274042E1)
    assert Digest.of(range(5000)) == Digest(5000, 0x284348FC32FA)


def test_the_message_of_an_undisturbed_run_has_its_steps_and_samples() -> None:
    assert numbers(a_run(range(300)).message()) == [300, 14_400, 0, 0]
    assert numbers(a_run(range(1)).message()) == [1, 48, 0, 0]
    assert a_run(range(1)).message().startswith("1 step, ")


def test_a_dropped_share_makes_the_certificate_red() -> None:
    certificate = a_run_with_one_bad_step(lambda read: read[2].clear())
    assert not certificate.holds
    assert (certificate.lost, certificate.repeated) == (12, 0)
    assert numbers(certificate.message()) == [6, 276, 12, 0, 3]


def test_a_repeated_share_makes_the_certificate_red() -> None:
    certificate = a_run_with_one_bad_step(lambda read: read.append(read[0]))
    assert (certificate.lost, certificate.repeated) == (0, 12)
    assert numbers(certificate.message()) == [6, 300, 0, 12, 3]


def test_one_share_dropped_and_another_repeated_is_wrong_though_the_count_is_right() -> None:
    def spoil(read: Reads) -> None:
        read[1] = read[0]

    certificate = a_run_with_one_bad_step(spoil)
    assert (certificate.lost, certificate.repeated, certificate.wrong, certificate.first_bad) == (0, 0, 1, 3)
    assert numbers(certificate.message()) == [6, 288, 0, 0, 1, 3]


def test_a_step_that_is_left_out_is_lost_and_one_that_comes_twice_is_repeated() -> None:
    certificate = a_run(range(3))
    assert not certificate.check(2, expected(2), expected(2))
    assert not certificate.check(5, expected(5), expected(5))
    assert (certificate.steps, certificate.lost, certificate.repeated) == (4, 2 * BATCH, BATCH)
    assert certificate.first_bad == 2
    assert certificate.check(6, expected(6), expected(6))


def test_steps_recomputed_from_a_checkpoint_are_counted_apart() -> None:
    saved = json.loads(json.dumps(a_run(range(50)).as_dict()))
    certificate = Certificate.from_dict(saved)
    certificate.resumed(50, [Life(0, 100)])
    a_run(range(50, 300), certificate)
    assert certificate.holds and certificate.recomputed == 50
    assert numbers(certificate.message()) == [300, 14_400, 0, 0, 50, 50]
    assert " recomputed " in certificate.message()


def test_a_resume_counts_the_same_whether_the_certificate_was_kept_or_loaded() -> None:
    loaded = Certificate.from_dict(a_run(range(50)).as_dict())
    kept = a_run(range(100))
    for certificate in (loaded, kept):
        certificate.resumed(50, [Life(0, 100)])
        a_run(range(50, 120), certificate)
    assert loaded == kept
    assert (kept.steps, kept.samples, kept.recomputed) == (120, 120 * BATCH, 50)


def test_every_life_that_recomputed_a_step_counts() -> None:
    certificate = a_run(range(50))
    certificate.resumed(50, [Life(0, 80), Life(50, 60)])
    a_run(range(50, 100), certificate)
    assert (certificate.steps, certificate.recomputed, certificate.resumed_at) == (100, 10 + 30, (50, 50))
    assert numbers(certificate.message()) == [100, 4800, 0, 0, 40, 2, 50, 50]


def test_what_a_checkpoint_knows_already_counts_once() -> None:
    certificate = a_run(range(50))
    certificate.resumed(50, [Life(0, 150)])
    a_run(range(50, 100), certificate)
    certificate.resumed(100, [Life(0, 150), Life(50, 130)])
    a_run(range(100, 160), certificate)
    assert (certificate.steps, certificate.recomputed, certificate.resumed_at) == (160, 80 + 50, (50, 100))


def test_a_fault_in_a_step_that_is_recomputed_is_found_too() -> None:
    certificate = a_run(range(10))
    certificate.resumed(4, [Life(0, 10)])
    assert not certificate.check(4, Digest.of(ORDER.indices(4)[1:]), expected(4))
    assert certificate.lost == 1 and certificate.first_bad == 4


def test_a_certificate_that_begins_at_a_checkpoint_says_what_it_covers() -> None:
    certificate = Certificate()
    certificate.resumed(50, [])
    a_run(range(50, 60), certificate)
    assert numbers(certificate.message()) == [10, 50, 480, 0, 0, 50]


def test_resumes_without_recomputed_steps_are_not_called_recomputed() -> None:
    certificate = a_run(range(50))
    certificate.resumed(50, [Life(0, 50)])
    assert numbers(certificate.message()) == [50, 2400, 0, 0, 50]
    assert "recomputed" not in certificate.message()
    a_run(range(50, 60), certificate)
    certificate.resumed(60, [Life(0, 50), Life(50, 60)])
    assert numbers(certificate.message()) == [60, 2880, 0, 0, 50, 60]
    assert "recomputed" not in certificate.message()


@pytest.mark.parametrize("spoiled", [False, True])
def test_a_certificate_survives_being_saved(spoiled: bool) -> None:
    certificate = a_run_with_one_bad_step(lambda read: read[0].pop()) if spoiled else a_run(range(5))
    saved = {**certificate.as_dict(), "of a later release": 1}
    assert saved["holds"] is not spoiled
    assert Certificate.from_dict(json.loads(json.dumps(saved))) == certificate


def test_a_joining_worker_takes_over_the_certificate_of_the_others() -> None:
    joined = Certificate()
    joined.take_over(a_run(range(7)))
    assert a_run(range(7, 9), joined) == a_run(range(9))
