"""Each benchmark of changing worlds as a command with one small round: its output is complete."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks import loss
from benchmarks.__main__ import all_benchmarks

ROOT = Path(__file__).parents[2]
WITHIN_S = 180
ALONE = ("--cases", "last", "--peer-rounds", "0")


def printed(name: str, *arguments: str) -> dict[str, Any]:
    """Runs a benchmark; ignores whether targets are met, because the machine is busy with tests."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--rounds", "1", "--json", *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    result: dict[str, Any] = msgspec.json.decode(done.stdout)
    problems = [row["problem"] for row in result["rounds"] if row.get("problem")]
    assert not problems, problems
    return result


def is_exact(row: dict[str, Any]) -> bool:
    return bool(row["identical"]) and row["lost"] == row["repeated"] == row["wrong"] == 0


@pytest.mark.slow
def test_a_hand_over_far_from_the_bus_loses_nothing_and_tells_its_pause() -> None:
    result = printed("handover", "--worlds", "2", "--delay-ms", "20", "--sleep-ms", "10")
    (row,) = result["rounds"]
    assert (row["world"], row["round_trip_ms"]) == (2, 20.0)
    assert {
        "pause_ms",
        "ordinary_p90_ms",
        "slowest_rank_ms",
        "notice_to_switch_ms",
        "step_before_ms",
        "step_after_ms",
    } <= row.keys()
    assert is_exact(row)
    assert row["released_after_switch_ms"] >= 0
    assert result["cases"][0]["figures"]["notice_to_switch_ms"]["median"] == pytest.approx(
        row["notice_to_switch_ms"], abs=0.01
    )
    assert {"bus", "store"} <= result["round_trips"]["protocol"].keys()
    assert result["machine"]["cores"] == os.cpu_count()
    assert {"handover", "loss", "join", "overhead"} <= {benchmark.name for benchmark in all_benchmarks()}


@pytest.mark.slow
def test_a_loss_is_told_phase_by_phase() -> None:
    result = printed("loss", "--worlds", "2", "--delay-ms", "0", "--sleep-ms", "10", *ALONE)
    (row,) = result["rounds"]
    assert {"halted_ms", "decided_ms", "assigned_ms", "built_ms", "computed_ms", "recovery_ms"} <= row.keys()
    assert row["halted_ms"] <= row["decided_ms"] <= row["assigned_ms"] <= row["recovery_ms"]
    assert is_exact(row)
    assert row["healthy_dropped"] == row["steps_of_the_lost"] == 0


@pytest.mark.slow
def test_a_join_ends_with_the_same_state_everywhere() -> None:
    result = printed("join", "--worlds", "2", "--delay-ms", "0", "--sleep-ms", "40", "--state-mb", "25")
    (row,) = result["rounds"]
    assert {"pause_ms", "beyond_ring_ms", "ask_to_switch_ms", "ask_to_active_ms"} <= row.keys()
    assert is_exact(row)
    assert [limit["figure"] for limit in result["limits"]] == ["world=2 state_mb=25 round_trip_ms=0.0 pause_ms median"]


@pytest.mark.slow
def test_the_overhead_stands_beside_what_the_same_side_differs_by() -> None:
    result = printed("overhead", "--steps", "5")
    (row,) = result["rounds"]
    assert row["ratio"] == pytest.approx(row["sdk_ms"] / row["ddp_ms"])
    assert row["a_a"] >= 1
    assert result["target"] >= 1.02


def test_a_world_that_is_too_small_for_a_case_leaves_it_out() -> None:
    assert loss.victims_of("two", 2) == ()
    assert loss.victims_of("two", 4) == (0, 2)
    assert loss.victims_of("last", 4) == loss.victims_of("silent", 4) == (3,)


@pytest.mark.parametrize("wrong", [["--worlds", "1"], ["--delay-ms", "-1"], ["--cases", "meteor"], ["--rounds", "0"]])
def test_options_that_make_no_sense_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        loss.main(wrong)
    assert wrong[0] in capsys.readouterr().err


def test_listing_the_benchmarks_imports_no_torch() -> None:
    check = "import sys, benchmarks.__main__ as all; all.all_benchmarks(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, timeout=60, check=False).returncode == 0
