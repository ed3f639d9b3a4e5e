"""Plans wait a minute for current prices, then use list prices; prices that were read stay in use."""

from controlplane.capacity.price_policy import (
    AnnounceCurrentPrices,
    AnnounceListPrices,
    Listed,
    PricesRead,
    PriceState,
    PricesUnread,
    decide,
)
from controlplane.clouds.interface import MarketPrice

BEGAN = PriceState(100.0)
PRICES = (MarketPrice("us-central1-a", "L4", 1, 2),)
LISTED = PriceState(100.0, (), Listed(1000.0, "no answer"))


def test_the_first_prices_are_waited_for_until_a_minute_is_over() -> None:
    waits = decide(BEGAN, PricesUnread(120.0, 1020.0, "no answer"))
    assert (waits.state, waits.effects) == (BEGAN, ())


def test_then_the_list_is_used_and_announced_once() -> None:
    listed = decide(BEGAN, PricesUnread(160.0, 1060.0, "no answer"))
    assert (listed.state, listed.effects) == (LISTED, (AnnounceListPrices(Listed(1000.0, "no answer")),))
    assert decide(LISTED, PricesUnread(170.0, 1070.0, "no answer")).effects == ()


def test_prices_are_missing_since_they_were_waited_for_however_late_the_failure_is_seen() -> None:
    late = decide(BEGAN, PricesUnread(185.0, 1085.0, "no answer"))
    assert late.state.listed == Listed(1000.0, "no answer")


def test_current_prices_replace_the_list_and_stay_while_reads_fail() -> None:
    read = decide(LISTED, PricesRead(200.0, PRICES))
    assert (read.state, read.effects) == (PriceState(100.0, PRICES), (AnnounceCurrentPrices(1000.0),))
    assert decide(read.state, PricesUnread(500.0, 1400.0, "no answer")).state == read.state
