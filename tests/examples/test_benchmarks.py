"""What the benchmarks read and say; the measurements themselves are run by `make bench`."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks import report, trace
from benchmarks.__main__ import all_benchmarks, main
from benchmarks.processes import command_line, leaving_none
from benchmarks.trace import TracedStep
from runtime.children import descendants


def test_a_line_that_is_still_being_written_is_not_read() -> None:
    assert trace.parse("10.5 3 4\n11.5 4 4\n12.") == [TracedStep(10.5, 3, 4), TracedStep(11.5, 4, 4)]


def test_the_first_step_of_the_smaller_world_counts_only_after_the_kill() -> None:
    steps = [TracedStep(1.0, 0, 3), TracedStep(5.0, 9, 4), TracedStep(8.0, 5, 3), TracedStep(7.5, 5, 3)]
    assert trace.first_of_world(steps, world=3, after_unix_s=5.5) == TracedStep(7.5, 5, 3)
    assert trace.first_of_world(steps, world=3, after_unix_s=9.0) is None
    assert trace.last_step(steps, world=4) == 9


def test_the_ratio_of_the_medians_decides() -> None:
    result = report.compare("x", "s", ours=[1.0, 3.0, 2.0], peer=[9.0, 10.0, None], target=0.25, rounds=[])
    assert (result.ours, result.peer, result.ok) == (2.0, 9.5, True)
    assert not report.compare("x", "s", ours=[3.0], peer=[10.0], target=0.25, rounds=[]).ok


def test_a_failed_round_of_ours_fails_the_benchmark() -> None:
    assert not report.compare("x", "s", ours=[1.0, None], peer=[10.0, 10.0], target=0.2, rounds=[]).ok
    assert not report.compare("x", "s", ours=[1.0], peer=[None], target=0.2, rounds=[]).ok


@pytest.mark.parametrize("as_json", [True, False])
def test_a_result_is_printed_for_machines_and_for_people(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    rounds: list[dict[str, object]] = [{"side": "ours", "restart_s": 1.0}, {"side": "peer", "restart_s": None}]
    result = report.compare("x", "s", ours=[1.0], peer=[10.0], target=0.2, rounds=rounds)
    assert report.publish(result, as_json=as_json) == 0
    printed = capsys.readouterr().out
    if as_json:
        assert {"name", "ours", "peer", "ratio", "target", "ok", "rounds"} <= msgspec.json.decode(printed).keys()
    else:
        assert "restart_s" in printed


def test_the_restart_benchmark_is_listed_and_the_peer_alone_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    names = [benchmark.name for benchmark in all_benchmarks()]
    assert "restart" in names
    assert "torchrun_peer" not in names
    assert main(["--list"]) == 0
    assert "restart: " in capsys.readouterr().out


def test_the_driver_does_not_import_torch() -> None:
    check = "import sys, benchmarks.restart; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0


def test_nothing_that_was_started_is_left_behind_not_even_orphans_in_sessions_of_their_own(tmp_path: Path) -> None:
    before = descendants(os.getpid())
    orphan = tmp_path / "orphan"
    with pytest.raises(KeyboardInterrupt), leaving_none():
        subprocess.run(["bash", "-c", f"setsid sleep 600 >{orphan}.out 2>&1 & echo $! >{orphan}"], check=True)
        pid = int(orphan.read_text())
        assert pid in descendants(os.getpid())
        raise KeyboardInterrupt
    assert command_line(pid) == ""
    assert descendants(os.getpid()) == before
