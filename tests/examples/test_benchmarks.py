"""The inputs and outputs of the benchmarks; `make bench` runs the measurements themselves."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from benchmarks import notice, reaction, report, trace
from benchmarks.__main__ import all_benchmarks, main
from benchmarks.processes import command_line, leaving_none
from benchmarks.simulated_fleet import Call, Node, fleet_file
from benchmarks.trace import TracedStep
from controlplane.fleet.files import read_fleet
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


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (report.percentile(values, 50), report.percentile(values, 99)) == (50.0, 99.0)
    assert report.percentile([7.0], 99) == 7.0
    assert report.percentile([], 50) is None


def test_without_a_peer_every_limit_has_to_be_kept() -> None:
    limits = {50.0: 50.0, 99.0: 250.0}
    kept = report.hold("x", "ms", ours=[40.0, 50.0, 250.0], targets=limits, rounds=[])
    assert (kept.ours, kept.peer, kept.ratio, kept.target, kept.ok) == (50.0, None, None, 50.0, True)
    assert not report.hold("x", "ms", ours=[40.0, 50.0, 251.0], targets=limits, rounds=[]).ok
    assert not report.hold("x", "ms", ours=[40.0, 50.0, None], targets=limits, rounds=[]).ok
    assert not report.hold("x", "ms", ours=[], targets=limits, rounds=[]).ok


@pytest.mark.parametrize("as_json", [True, False])
def test_a_result_without_a_peer_is_printed_too(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = [reaction.Reaction(1, "a-node", 60.0, "CreateNodePool").raw()]
    result = report.hold("x", "ms", ours=[60.0], targets={50.0: 50.0}, rounds=rounds)
    assert report.publish(result, as_json=as_json) == 1
    printed = capsys.readouterr().out
    if as_json:
        said = msgspec.json.decode(printed)
        assert (said["ours"], said["peer"], said["ratio"], said["target"], said["ok"]) == (
            60.0,
            None,
            None,
            50.0,
            False,
        )
        assert said["rounds"][0]["reaction_ms"] == 60.0
    else:
        assert "MISSED" in printed


def test_only_a_request_for_another_pool_is_a_reaction() -> None:
    def call(number: int, method: str, pool: str) -> Call:
        return Call(number, 0.0, float(number), "gke", method, f"project/us-central1-a/us/{pool}", "node_count=1")

    lowered, asked = call(1, "SetNodePoolSize", "pool-a"), call(2, "GetOperation", "operation-1")
    raised = call(3, "CreateNodePool", "pool-b")
    victim = Node("node-1", "pool-a", "us-central1-a", "running")
    assert reaction.raising([lowered, asked], victim) is None
    assert reaction.raising([lowered, asked, raised], victim) == raised


def test_the_first_notice_after_the_preemption_counts() -> None:
    events = [
        {"kind": kind, "at": at} for kind, at in (("worker_noticed", 1.0), ("world", 3.0), ("worker_noticed", 4.0))
    ]
    assert notice.first_notice(events, since_unix_s=2.0) == events[2]
    assert notice.first_notice(events, since_unix_s=5.0) is None


def test_the_fleet_of_the_benchmarks_is_a_fleet(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_bytes(msgspec.json.encode(fleet_file(1, 2)))
    assert len(read_fleet(file).offers) > 2


@pytest.mark.parametrize("wrong", [["--preemptions", "0"], ["--preemptions", "many"]])
@pytest.mark.parametrize("benchmark", [reaction.main, notice.main])
def test_a_number_of_preemptions_that_makes_no_sense_is_refused(
    benchmark: Callable[[Sequence[str]], int], wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        benchmark(wrong)
    assert "--preemptions" in capsys.readouterr().err


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
    assert {"restart", "reaction", "notice"} <= set(names)
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
