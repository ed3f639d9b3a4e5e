"""The model against runs that others measured, where their data is on this machine."""

import statistics
from collections.abc import Callable

import pytest

from benchmarks import throughput_model as benchmark
from benchmarks.throughput_model import MEAN_PERCENT, MOST_PERCENT, Round, all_rounds, data_folder

FOLDER = data_folder()
needs_data = pytest.mark.skipif(FOLDER is None, reason="the measured runs are not on this machine")


@pytest.fixture(scope="module")
def rounds() -> list[Round]:
    assert FOLDER is not None
    return all_rounds(FOLDER)


@needs_data
def test_every_one_stage_run_is_compared_but_the_bad_ones(rounds: list[Round]) -> None:
    assert len(rounds) == 14
    assert len({(each.run, each.measured_s) for each in rounds}) == 14


@needs_data
@pytest.mark.parametrize("part", ["", "main_", "sosp25_", "clariden", "mit"])
def test_the_model_is_near_the_measured_runs(rounds: list[Round], part: str, tell: Callable[[str], None]) -> None:
    errors = [abs(each.error_percent) for each in rounds if part in each.run]
    tell(f"throughput model, {part or 'all'}: mean error {statistics.fmean(errors):.1f} %, most {max(errors):.1f} %")
    assert statistics.fmean(errors) <= MEAN_PERCENT
    assert max(errors) <= MOST_PERCENT


@needs_data
def test_where_the_network_is_slow_what_it_costs_is_seen(rounds: list[Round]) -> None:
    slow = [each for each in rounds if "/mit/" in each.run]
    assert len(slow) == 3
    assert all(each.communication_s > 0.15 * each.measured_s for each in slow)
    assert all(abs(each.error_percent) < 5 for each in slow)


def test_without_the_data_the_benchmark_says_so_and_does_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "data_folder", lambda: None)
    assert benchmark.main([]) == 0
    assert "TRADEWIND_TEST_DATA" in capsys.readouterr().err
