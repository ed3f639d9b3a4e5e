"""The benchmark of plans in small; `make bench` runs its measurements."""

from pathlib import Path

import msgspec
import pytest

from benchmarks import planning
from benchmarks.plans.markets import Quote, traced
from benchmarks.plans.situations import CASES

TRACE = Path(__file__).resolve().parents[2] / "examples" / "traces" / "two_regions.csv"


def test_it_tells_the_time_the_gap_and_every_policy_with_raw_rounds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "ZONES_AND_MS", {1: 60_000.0, 10: 60_000.0})
    planning.main(["--json", "--rounds", "1", "--markets", "1", "--trace", str(TRACE)])
    said = msgspec.json.decode(capsys.readouterr().out)
    parts = [row["part"] for row in said["rounds"]]
    assert (parts.count("time"), parts.count("gap"), parts.count("day")) == (2, len(CASES), 16)
    assert {row["policy"] for row in said["rounds"] if row["part"] == "day"} == {
        "ours",
        "cheapest zone",
        "round robin",
        "one region",
    }
    assert next(limit["ours"] for limit in said["limits"] if limit["figure"] == "largest gap") <= 1e-6


def test_a_row_of_a_trace_changes_only_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(
        "time_s,zone,accelerator,capacity,price\n0,us-central1-a,nvidia-l4,8,0.5\n60,us-central1-a,nvidia-l4,3,\n"
    )
    first, second = traced(file)
    assert first.quotes["us-central1-a", "L4"] == Quote(0.5, 8)
    assert second.quotes["us-central1-a", "L4"] == Quote(0.5, 3)
