"""A line through what was measured."""

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from controlplane.throughput.profile import Measured, fitted


def line(measured: list[Measured]) -> tuple[float, float]:
    found = fitted(measured)
    assert found is not None
    return found.seconds_per_sample, found.seconds_per_step


def test_without_a_measurement_there_is_no_line() -> None:
    assert fitted([]) is None
    assert fitted([Measured(0, 1.0), Measured(8, 0.0)]) is None


def test_measurements_of_one_size_give_a_line_through_zero() -> None:
    assert line([Measured(10, 1.0), Measured(10, 3.0)]) == approx((0.2, 0.0))


def test_a_line_that_no_computer_could_have_goes_through_zero_instead() -> None:
    falling = line([Measured(1, 3.0), Measured(2, 1.0)])
    negative = line([Measured(10, 1.0), Measured(20, 3.0)])
    assert falling == approx(((1 * 3 + 2 * 1) / 5, 0.0))
    assert negative == approx(((10 * 1 + 20 * 3) / 500, 0.0))


@given(st.floats(1e-4, 10), st.floats(0, 100), st.sets(st.integers(1, 1000), min_size=2, max_size=10))
def test_a_line_is_found_again(per_sample: float, per_step: float, sizes: set[int]) -> None:
    found = fitted(Measured(size, per_sample * size + per_step) for size in sizes)
    assert found is not None
    for size in sizes:
        assert found.seconds_per_sample * size + found.seconds_per_step == approx(
            per_sample * size + per_step, rel=1e-4
        )
