"""The benchmark of scale with few workers: all figures are there, and all workers see the loss."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
WITHIN_S = 120
SMALL = ("--workers", "20", "--clusters", "2", "--losses", "1", "--steady-s", "0.5")


def one_round(*arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The only round and its limits; ignores whether targets are met."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", *SMALL, *arguments, "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    result = msgspec.json.decode(done.stdout)
    (row,) = result["rounds"]
    assert "problem" not in row, done.stderr
    return row, {limit["figure"]: limit["ours"] for limit in result["limits"]}


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "trainers"), [("1", ()), ("2", ()), ("1", ("--sdk",))])
def test_a_loss_among_played_workers_is_measured(jobs: str, trainers: tuple[str, ...]) -> None:
    row, limits = one_round("--jobs", jobs, *trainers)
    (change,) = row["changes"]
    assert change["took_ms"] > 0
    assert change["bytes_in_per_worker"] > 0
    assert row["steady"]["heartbeats_per_s"] > 0
    assert row["steady"]["cpu_share"] >= 0
    assert len(row["raw_ms"]) == 10
    assert min(row["rss_mb"]) > 0
    assert {"status", "events", "healthz"} == row["api"].keys()
    assert all(latency["asked"] and not latency["failed"] for latency in row["api"].values())
    assert set(limits.values()) == {0}, "nobody but the lost worker was removed, and the master kept its lease"
