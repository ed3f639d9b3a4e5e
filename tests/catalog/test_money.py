"""Money is exact."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.catalog.money import from_nano_dollars, micro_dollars, usd_text


def test_dollars_as_text_become_whole_micro_dollars() -> None:
    assert micro_dollars("0.8536") == 853_600
    assert micro_dollars("101.7013") == 101_701_300
    assert micro_dollars("0.1") * 3 == micro_dollars("0.3")


def test_half_a_micro_dollar_is_rounded_up() -> None:
    assert from_nano_dollars(1_499) == 1
    assert from_nano_dollars(1_500) == 2


@given(st.integers(min_value=0, max_value=10**12))
def test_what_is_shown_with_six_decimals_is_read_back_as_it_was(amount: int) -> None:
    assert micro_dollars(usd_text(amount, decimals=6)) == amount
