"""The market: traces, the generator, lifetimes, and the times of changes."""

import errno
import itertools
import os
import re
import statistics
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import UserError
from simulator.market import feed
from simulator.market.feed import Weather, generate
from simulator.market.markets import ACCELERATORS, Change, Lifetimes, Market, accelerator, micro_usd
from simulator.market.traces import read_trace

EXAMPLES = Path(__file__).parents[2] / "examples" / "traces"
HERE = Market("us-central1-a", "nvidia-l4")
THERE = Market("europe-west4-b", "nvidia-l4")


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_table_is_read_in_the_order_of_time_with_gaps_left_as_they_were(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "time_s,zone,accelerator,capacity,price,notice_s\n"
        "60,us-central1-a,nvidia-l4,,0.75,\n"
        "0,us-central1-a,L4,8,0.5,\n"
        "90.5,us-central1-a,nvidia-l4,2,,15\n",
    )
    assert read_trace(path) == (
        Change(0.0, HERE, 8, micro_usd(0.5)),
        Change(60.0, HERE, None, micro_usd(0.75)),
        Change(90.5, HERE, 2, None, 15.0),
    )


def test_the_same_table_can_be_json(tmp_path: Path) -> None:
    path = written(tmp_path, '[{"time_s": 5, "zone": "us-central1-a", "accelerator": "nvidia-l4", "capacity": 3}]')
    assert read_trace(path) == (Change(5.0, HERE, 3),)


def test_samples_without_a_market_are_of_the_one_that_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, '[{"Time": 0, "GPUs": 4}, {"Time": 63, "GPUs": 4}, {"Time": 126, "GPUs": 3}]')
    assert read_trace(path, HERE) == (Change(0.0, HERE, 4), Change(126.0, HERE, 3))
    with pytest.raises(UserError, match=re.escape(str(path))) as refused:
        read_trace(path)
    assert refused.value.hint.startswith("--trace")


def test_counts_with_a_column_for_each_market_begin_with_their_first_row(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ",Timestamp,L4_us-central1-a,L4_europe-west4-b\n0,1712574014.5,32,8\n1,1712574137.0,80,4\n",
    )
    assert read_trace(path) == (
        Change(0.0, HERE, 32),
        Change(0.0, THERE, 8),
        Change(122.5, HERE, 80),
        Change(122.5, THERE, 4),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("time_s,zone,accelerator\n", "is empty"),
        ("time_s,zone,accelerator,capacity\nsoon,us-central1-a,l4,1\n", "time_s"),
        ("time_s,zone,accelerator,capacity\n0,us-central1-a,l4,-1\n", "capacity"),
        ("time_s,zone,accelerator,price\n0,us-central1-a,l4,1e308\n", "price"),
        ("time_s,zone,accelerator,notice_s\n0,us-central1-a,l4,1e9\n", "notice_s"),
        ("time_s,zone,accelerator,capacity\n0,us-central1-a,abacus,1\n", "abacus"),
        ("time_s,zone,accelerator,colour\n0,us-central1-a,l4,red\n", "colour"),
        ("[{]", "is not JSON"),
        ('[{"time_s": "0", "zone": "a", "accelerator": "l4"}]', "time_s"),
        (",Timestamp,L4_us-central1-a\n0,now,1\n", "not a number"),
        (",Timestamp,abacus_us-central1-a\n0,1,1\n", "abacus"),
    ],
)
def test_a_trace_that_cannot_be_used_says_where(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UserError) as refused:
        read_trace(written(tmp_path, text))
    assert why in str(refused.value)


def test_a_trace_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=os.strerror(errno.ENOENT)):
        read_trace(tmp_path / "none.csv")


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_the_examples_can_be_played(path: Path) -> None:
    changes = read_trace(path)
    assert changes[0].at_s == 0.0
    assert len({change.market for change in changes}) >= 2
    assert any(change.capacity == 0 for change in changes), "a story without a stockout is none"


def test_accelerators_are_known_by_short_names_in_any_case() -> None:
    assert accelerator("A100-40") is ACCELERATORS["nvidia-tesla-a100"]
    assert accelerator("l4") is ACCELERATORS["nvidia-l4"]
    assert accelerator("abacus") is None


MARKETS = [
    Market(zone, name) for zone in ("us-central1-a", "us-central1-b") for name in ("nvidia-l4", "nvidia-tesla-t4")
]


def a_day(seed: int, markets: list[Market] = MARKETS) -> list[Change]:
    return list(itertools.takewhile(lambda change: change.at_s < 86_400, generate(markets, Weather(), seed)))


def test_the_same_seed_makes_the_same_day_and_another_another() -> None:
    assert a_day(1) == a_day(1)
    assert a_day(1) != a_day(2)


def test_a_zone_has_its_own_luck_whatever_else_there_is() -> None:
    alone = a_day(1, [market for market in MARKETS if market.zone == "us-central1-a"])
    assert alone == [change for change in a_day(1) if change.market.zone == "us-central1-a"]


@given(st.integers(0, 200))
def test_a_generated_day_is_a_day_that_can_be(seed: int) -> None:
    day = a_day(seed)
    assert {change.market for change in day if change.at_s == 0} == set(MARKETS)
    assert [change.at_s for change in day] == sorted(change.at_s for change in day)
    for change in day:
        assert change.capacity is not None
        assert change.price is not None
        assert 0 <= change.capacity <= 200
        assert 0 < change.price <= ACCELERATORS[change.market.accelerator].on_demand


def test_losses_in_a_zone_come_together() -> None:
    day = [change for seed in range(20) for change in a_day(seed) if change.at_s > 0]
    at_once = defaultdict(set)
    for index, change in enumerate(day):
        at_once[change.at_s, change.market.zone].add((index, change.market))
    together = [changes for changes in at_once.values() if len(changes) > 1]
    assert len(together) > 20, "bad hours strike all accelerators of a zone"
    assert all(len({market for _, market in changes}) == 2 for changes in together)


def test_many_nodes_die_young_and_the_mean_is_what_was_asked_for() -> None:
    lives = [Lifetimes(3600.0, shape=0.7).draw_s(f"node {number}") for number in range(4000)]
    assert statistics.mean(lives) == pytest.approx(3600.0, rel=0.1)
    assert statistics.median(lives) < 0.7 * 3600.0
    assert max(lives) > 5 * 3600.0


def test_no_node_outlives_the_cap() -> None:
    lives = [Lifetimes(3600.0, cap_s=4000.0).draw_s(f"node {number}") for number in range(500)]
    assert max(lives) == 4000.0


def test_a_traced_market_is_not_generated_as_well() -> None:
    trace = (Change(0.0, HERE, 1), Change(10.0, HERE, 2))
    changes = list(itertools.islice(feed.merged([trace], [HERE, THERE], Weather(), 1), 50))
    assert [change for change in changes if change.market == HERE] == list(trace)
    assert len([change for change in changes if change.market == THERE]) == 48
    assert [change.at_s for change in changes] == sorted(change.at_s for change in changes)


class HastyClock:
    """A clock that advances by a second with each read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s


async def test_changes_are_told_at_their_time_divided_by_the_speed() -> None:
    reported: list[float] = []
    changes = [Change(at_s, HERE, 1) for at_s in (0.0, 100.0, 200.0)]
    await feed.play(iter(changes), 0.0, 100.0, HastyClock(), lambda change: reported.append(change.at_s))
    assert reported == [0.0, 100.0, 200.0]
