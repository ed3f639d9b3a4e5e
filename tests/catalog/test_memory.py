"""Observations: a refusal lowers availability, a machine raises it, and both fade in time."""

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from controlplane.catalog import memory as core
from controlplane.catalog.memory import (
    DAY_S,
    HOUR_S,
    Estimate,
    Granted,
    Lived,
    Memory,
    Observation,
    Priors,
    QuotaRefused,
    StockedOut,
    Taken,
    learn,
)
from controlplane.catalog.memory_records import MAX_ACCELERATORS, decode, encode_zone
from messages.subjects import memory_key

ZONE = "us-central1-a"
GPU = "L4"
NOON = 1_800_000_000.0 // DAY_S * DAY_S + 12 * HOUR_S
YEAR_S = 365 * DAY_S

moments = st.floats(min_value=NOON - 3 * DAY_S, max_value=NOON)
spans = st.floats(min_value=0, max_value=30 * DAY_S)


def observations() -> st.SearchStrategy[Observation]:
    return st.one_of(
        st.builds(Granted, st.just(ZONE), st.just(GPU), moments, st.none() | st.floats(1, 3600)),
        st.builds(StockedOut, st.just(ZONE), st.just(GPU), moments),
        st.builds(QuotaRefused, st.just(ZONE), st.just(GPU), moments),
        st.builds(Lived, st.just(ZONE), st.just(GPU), moments, spans),
        st.builds(Taken, st.just(ZONE), st.just(GPU), moments, spans),
    )


histories = st.lists(observations(), max_size=30)


def remembered(history: Sequence[Observation]) -> Memory:
    memory = Memory()
    for observation in history:
        memory = learn(memory, observation)
    return memory


def estimated(memory: Memory, at: float = NOON) -> Estimate:
    return core.estimate(memory, ZONE, GPU, at)


def test_of_the_unknown_the_prior_is_believed() -> None:
    prior = Priors()
    assert estimated(Memory()) == Estimate(prior.availability, prior.lifetime_s, prior.boot_s, 0.0)
    other = learn(Memory(), StockedOut("us-central1-b", GPU, NOON))
    assert estimated(other).observations == 0


@given(histories)
def test_nothing_is_ever_sure_or_hopeless(history: list[Observation]) -> None:
    found = estimated(remembered(history))
    assert 0 < found.availability < 1
    assert 0 < found.mean_lifetime_s < math.inf
    assert 0 < found.boot_s < math.inf


@given(histories, st.floats(min_value=0, max_value=6 * HOUR_S))
def test_a_stockout_lowers_and_a_machine_raises_the_hope(history: list[Observation], later_s: float) -> None:
    memory = remembered(history)
    before = estimated(memory, NOON + later_s).availability
    assert estimated(learn(memory, StockedOut(ZONE, GPU, NOON)), NOON + later_s).availability < before
    assert estimated(learn(memory, QuotaRefused(ZONE, GPU, NOON)), NOON + later_s).availability < before
    assert estimated(learn(memory, Granted(ZONE, GPU, NOON)), NOON + later_s).availability > before


@given(histories)
def test_a_machine_that_lives_on_raises_the_expected_life_and_one_that_is_soon_taken_lowers_it(
    history: list[Observation],
) -> None:
    memory = remembered(history)
    before = estimated(memory).mean_lifetime_s
    assert estimated(learn(memory, Lived(ZONE, GPU, NOON, HOUR_S))).mean_lifetime_s > before
    assert estimated(learn(memory, Taken(ZONE, GPU, NOON, 0.0))).mean_lifetime_s < before


@given(histories)
def test_everything_is_forgotten_in_the_end(history: list[Observation]) -> None:
    long_after = estimated(remembered(history), NOON + 3 * YEAR_S)
    prior = Priors()
    assert math.isclose(long_after.availability, prior.availability, rel_tol=1e-6)
    assert math.isclose(long_after.mean_lifetime_s, prior.lifetime_s, rel_tol=1e-6)
    assert math.isclose(long_after.boot_s, prior.boot_s, rel_tol=1e-6)
    assert long_after.observations == 0


@given(st.integers(1, 50), st.floats(0, 10 * DAY_S), st.floats(0, 10 * DAY_S))
def test_hope_comes_back_steadily_at_the_same_hour(stockouts: int, one_s: float, other_s: float) -> None:
    memory = remembered([StockedOut(ZONE, GPU, NOON)] * stockouts)
    sooner, later = (NOON + days // DAY_S * DAY_S for days in sorted((one_s, other_s)))
    assert estimated(memory, sooner).availability <= estimated(memory, later).availability + 1e-12


orders = st.lists(observations(), max_size=12).flatmap(
    lambda reported: st.tuples(st.just(reported), st.permutations(reported))
)


@given(orders)
def test_the_order_in_which_things_are_told_does_not_matter(
    orders: tuple[list[Observation], list[Observation]],
) -> None:
    history, shuffled = orders
    one, other = estimated(remembered(history)), estimated(remembered(shuffled))
    assert math.isclose(one.availability, other.availability, rel_tol=1e-4)
    assert math.isclose(one.mean_lifetime_s, other.mean_lifetime_s, rel_tol=1e-4)


def test_an_hour_of_the_day_is_remembered_when_the_rest_of_the_day_is_not() -> None:
    stockouts = [StockedOut(ZONE, GPU, NOON - day * DAY_S) for day in range(5)]
    memory = remembered(sorted(stockouts, key=lambda each: each.at))
    tomorrow = NOON + DAY_S
    assert estimated(memory, tomorrow).availability < 0.4
    assert estimated(memory, tomorrow + 6 * HOUR_S).availability > 0.55


def test_quota_is_told_apart_and_says_nothing_about_the_hour() -> None:
    memory = learn(Memory(), QuotaRefused(ZONE, GPU, NOON))
    assert estimated(memory).availability < Priors().availability
    assert math.isclose(estimated(memory, NOON + 4 * DAY_S).availability, Priors().availability, rel_tol=1e-4)


def test_a_mean_life_counts_those_that_still_run() -> None:
    lives = [Taken(ZONE, GPU, NOON, 2 * HOUR_S)] * 50 + [Lived(ZONE, GPU, NOON, 2 * HOUR_S)] * 50
    assert abs(estimated(remembered(lives)).mean_lifetime_s - 4 * HOUR_S) < 120


def test_boot_times_are_averaged() -> None:
    boots = [Granted(ZONE, GPU, NOON, 60.0)] * 40
    assert 60 < estimated(remembered(boots)).boot_s < 63


def test_the_memory_is_bounded_and_what_was_longest_quiet_goes() -> None:
    memory = Memory()
    for number in range(core.MAX_AVAILABILITY_KEYS + 5):
        memory = learn(memory, StockedOut(f"zone-{number:04}", GPU, NOON + number))
    assert len(memory.availability) == core.MAX_AVAILABILITY_KEYS
    assert min(availability_key.zone for availability_key in memory.availability) == "zone-0005"


@given(histories)
def test_what_is_kept_is_read_back_almost_as_it_was(history: list[Observation]) -> None:
    memory = remembered([*history, Granted(ZONE, GPU, NOON, 90.0)])
    kept, problems = decode({memory_key(ZONE): encode_zone(memory, ZONE)})
    one, other = estimated(memory), estimated(kept)
    assert problems == ()
    assert math.isclose(one.availability, other.availability, rel_tol=1e-3)
    assert math.isclose(one.mean_lifetime_s, other.mean_lifetime_s, rel_tol=1e-3)


def test_a_full_zone_stays_small() -> None:
    memory = Memory()
    for number in range(MAX_ACCELERATORS + 3):
        for hour in range(24):
            for lived_s in (1234.5678, 98765.4321):
                memory = learn(memory, Taken(ZONE, f"gpu-{number}", NOON + hour * HOUR_S + number, lived_s))
                memory = learn(memory, Granted(ZONE, f"gpu-{number}", NOON + hour * HOUR_S, 61.37))
    encoded = encode_zone(memory, ZONE)
    assert len(encoded) < 100_000
    kept, _ = decode({memory_key(ZONE): encoded})
    assert len(kept.availability) == MAX_ACCELERATORS


def test_what_cannot_be_read_is_forgotten_and_told() -> None:
    good = encode_zone(learn(Memory(), StockedOut(ZONE, GPU, NOON)), ZONE)
    entries = {
        memory_key(ZONE): good,
        memory_key("us-east1-b"): b"{",
        memory_key("us-east1-c"): b'{"version":7,"accelerators":{}}',
    }
    memory, problems = decode(entries)
    assert list(memory.availability) == [core.AvailabilityKey(ZONE, GPU)]
    assert len(problems) == 2
    assert "us-east1-b" in problems[0]


def test_what_earlier_versions_stored_besides_is_passed_over() -> None:
    seen = '{"at": 1000.0, "late": [1.0], "by_hour": {}, "last_stockout_at": 900.0, "last_quota_refusal_at": null}'
    stored = f'{{"version": 1, "accelerators": {{"{GPU}": {seen}}}}}'.encode()
    memory, problems = decode({memory_key(ZONE): stored})
    assert problems == ()
    assert estimated(memory, 1000.0).observations > 0
