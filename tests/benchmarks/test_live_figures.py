"""Figures from traces of trainers, and verdicts from figures."""

import re
from pathlib import Path

import msgspec
import pytest

from benchmarks import handover, join, loss, overhead
from benchmarks.live import report, trace
from benchmarks.live.options import distances
from benchmarks.live.report import Target
from benchmarks.live.trace import Moment, Traced

STEP_S = 0.1
SWITCH_AT = 20


def steps_of(pid: int, rank: int, extra_s: float = 0.0) -> list[Traced]:
    """40 steps of 100 ms; the first of generation 2 takes `extra_s` longer."""
    found = []
    at = 0.0
    for step in range(40):
        at += STEP_S + (extra_s if step == SWITCH_AT else 0.0)
        found.append(Traced(at, "step", rank, 1 if step < SWITCH_AT else 2, step, pid=pid))
    return found


def in_order(*groups: list[Traced]) -> list[Traced]:
    return sorted((event for group in groups for event in group), key=lambda event: event.at)


def test_the_pause_is_what_the_world_lost_and_what_its_slowest_rank_saw() -> None:
    switched = [Traced(2.0, "switched", 0, 2, 19, pid=10), Traced(2.001, "switched", 1, 2, 19, pid=11)]
    early = [
        msgspec.structs.replace(step, at=step.at - 0.005) if step.step < SWITCH_AT else step
        for step in steps_of(10, 0, 0.004)
    ]
    events = in_order(early, steps_of(11, 1, 0.007), switched)
    row = handover.figures(events, Moment(1, 18, {0: 10, 1: 11}), [10, 11], noticed_s=1.85)
    assert row["pause_ms"] == pytest.approx(7.0)
    assert row["lost_since_notice_ms"] == pytest.approx(7.0)
    assert row["ordinary_p90_ms"] == pytest.approx(0.0, abs=1e-6)
    assert row["slowest_rank_ms"] == pytest.approx(9.0)
    assert row["ordinary_slowest_rank_ms"] == pytest.approx(0.0, abs=1e-6)
    assert row["notice_to_switch_ms"] == pytest.approx(151.0)
    assert row["steps_to_switch"] == 2


def test_a_joining_worker_is_told_apart_from_those_who_were_there() -> None:
    reported = [
        Traced(1.5, "asked", 0, 0, 0, pid=12),
        Traced(2.0, "switched", 0, 2, 19, pid=10),
        Traced(2.0, "switched", 1, 2, 19, pid=11),
        Traced(2.25, "active", 2, 2, 21, pid=12),
    ]
    events = in_order(steps_of(10, 0, 0.02), steps_of(11, 1, 0.01), reported)
    row = join.figures(events, Moment(1, 14, {0: 10, 1: 11}), sleep_ms=0.0)
    assert row["pause_ms"] == pytest.approx(20.0)
    assert row["slowest_rank_ms"] == pytest.approx(20.0)
    assert row["excess_until_active_ms"] == pytest.approx(20.0)
    assert (row["ask_to_switch_ms"], row["ask_to_active_ms"]) == (pytest.approx(500.0), pytest.approx(750.0))
    assert row["steps_to_active"] == 2


def test_a_loss_is_over_when_the_last_survivor_has_a_step_of_the_new_world() -> None:
    struck_s = 1.96
    events = in_order(steps_of(10, 0), steps_of(11, 1, 0.03), [Traced(2.0, "computed", 0, 2, 20, 24, pid=10)])
    master = [{"kind": "world_halted", "at": 1.97}, {"kind": "world_decided", "at": 1.98}]
    row = loss.phases(events, master, [10, 11], 1, struck_s)
    assert row["recovery_ms"] == pytest.approx(170.0)
    assert (row["halted_ms"], row["decided_ms"]) == (pytest.approx(10.0), pytest.approx(20.0))
    assert row["computed_ms"] == pytest.approx(40.0)
    assert row["halts"] == 1


def test_the_present_world_is_that_of_the_newest_steps() -> None:
    late = [Traced(9.0, "step", 2, 1, 3, pid=12)]
    moment = trace.current(in_order(steps_of(10, 0), steps_of(11, 1), late))
    assert moment == Moment(2, 39, {0: 10, 1: 11})
    assert trace.current([]) is None


def test_a_line_that_is_still_being_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    first, second = (
        msgspec.json.encode({"at": at, "what": "step", "rank": 0, "generation": 1, "step": 3, "entry": "start"})
        for at in (1.0, 2.0)
    )
    reader = trace.Reader(tmp_path)
    (tmp_path / "77.jsonl").write_bytes(first + b"\n" + second[:10])
    assert reader.read() == [Traced(1.0, "step", 0, 1, 3, pid=77)]
    (tmp_path / "77.jsonl").write_bytes(first + b"\n" + second + b"\n")
    assert reader.read() == [Traced(1.0, "step", 0, 1, 3, pid=77), Traced(2.0, "step", 0, 1, 3, pid=77)]


def row(side: str, recovery_ms: float, round_trip_ms: float = 0.0) -> dict[str, object]:
    of = {"side": side, "world": 4, "case": "last", "round_trip_ms": round_trip_ms}
    return {**of, "number": 1, "recovery_ms": recovery_ms}


def test_limits_ratios_and_round_trips_follow_from_the_rounds() -> None:
    rounds = [row("ours", 80.0), row("ours", 120.0), row("ours", 90.0), row("ours", 290.0, 100.0), row("peer", 9000.0)]
    target = {"side": "ours", "world": 4, "round_trip_ms": 0.0}
    result = report.result_of(
        "loss",
        rounds=rounds,
        targets=[Target("recovery_ms", target, 130.0), Target("recovery_ms", target, 100.0, "most")],
        ratio="recovery_ms",
        distant=["recovery_ms"],
    )
    assert [(limit.ours, limit.is_met) for limit in result.limits] == [(90.0, True), (120.0, False)]
    assert not result.ok
    assert [ratio.ratio for ratio in result.ratios] == [0.01]
    assert result.round_trips["measured"] == {" ".join(("ours", "4", "last", "recovery_ms")): 2.0}


def test_a_round_of_ours_that_failed_or_was_not_exact_fails_the_rest() -> None:
    fine = [row("ours", 80.0), row("peer", 9000.0)]
    assert report.result_of("loss", rounds=fine, targets=[]).ok
    failed = [*fine, {"side": "ours", "world": 4, "case": "last", "round_trip_ms": 0.0, "problem": "it hangs"}]
    assert not report.result_of("loss", rounds=failed, targets=[]).ok
    assert not report.result_of("loss", rounds=fine, targets=[], must_hold=lambda row: False).ok
    assert not report.result_of("loss", rounds=[], targets=[]).ok


def test_what_people_read_has_every_case_and_every_limit(capsys: pytest.CaptureFixture[str]) -> None:
    target = Target("recovery_ms", {"side": "ours"}, 50.0)
    result = report.result_of("loss", rounds=[row("ours", 80.0)], targets=[target], protocol={"bus": "2"})
    assert report.publish(result, as_json=False) == 1
    reported = capsys.readouterr().out
    assert "world=4 case=last" in reported
    assert "bus: 2" in reported
    assert re.search(r"\b80\.0\b.*\b50\b.*MISSED", reported)


def test_only_one_world_is_measured_from_afar() -> None:
    assert distances((2, 4, 8), (0.0, 40.0)) == [(2, 0.0), (4, 0.0), (8, 0.0), (4, 40.0)]
    assert distances((2, 3), (100.0,)) == [(3, 100.0)]


def test_what_a_side_differs_from_itself_by_is_forgiven() -> None:
    blocks = [("ddp", 10.0), ("sdk", 10.5), ("sdk", 10.5), ("ddp", 11.0)]
    figures = overhead.figures([{"side": side, "steps_ms": [took, took]} for side, took in blocks])
    assert figures["ratio"] == pytest.approx(1.0)
    assert figures["a_a"] == pytest.approx(1.1)
    quiet = {**figures, "a_a": 1.001}
    assert overhead.result_of([{**quiet, "ratio": 1.05}]).ok is False
    assert overhead.result_of([{**figures, "ratio": 1.05}]).ok is True
