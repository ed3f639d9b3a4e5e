"""The report of the benchmarks of changing worlds: figures of each case, limits, ratios, all raw rounds.

A figure has the median and the largest value of its rounds. Distance is reported in round trips: the growth of a figure
from no delay to the longest delay, divided by that delay.
"""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.report import Limit

Row = Mapping[str, Any]
CASE = ("side", "world", "case", "state_mb", "round_trip_ms")
"""Fields that identify a case of a benchmark."""
_LABELS = ("number", "leaving")


class Figure(Struct, frozen=True):
    median: float
    most: float


class Case(Struct, frozen=True):
    """Rounds with the same parameters."""

    of: dict[str, Any]
    rounds: int
    failed: int
    figures: dict[str, Figure]


class Ratio(Struct, frozen=True):
    figure: str
    ours: float
    peer: float
    ratio: float


class Result(Struct, frozen=True):
    name: str
    unit: str
    ok: bool
    limits: tuple[Limit, ...]
    """Limits of the cases that were run."""
    ratios: tuple[Ratio, ...]
    cases: tuple[Case, ...]
    round_trips: dict[str, Any]
    """Round trips on the critical path: those of the protocol, and those measured with delays."""
    machine: dict[str, Any]
    rounds: tuple[Row, ...]


class Target(Struct, frozen=True):
    """The largest allowed value of a figure in the matching cases."""

    figure: str
    of: dict[str, Any]
    most: float
    statistic: str = "median"

    @property
    def name(self) -> str:
        fits = " ".join(f"{name}={value}" for name, value in self.of.items())
        return f"{fits} {self.figure} {self.statistic}".strip()


def cases_of(rounds: Sequence[Row]) -> list[Case]:
    """The cases in order of their first round."""
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in rounds:
        grouped.setdefault(tuple(row.get(key) for key in CASE), []).append(row)
    return [_case(dict(zip(CASE, key, strict=True)), rows) for key, rows in grouped.items()]


def _case(of: dict[str, Any], rows: list[Row]) -> Case:
    names = dict.fromkeys(name for row in rows for name in _numbers(row))
    figures = {}
    for name in names:
        seen = [_numbers(row)[name] for row in rows if name in _numbers(row)]
        figures[name] = Figure(round(statistics.median(seen), 3), round(max(seen), 3))
    known = {key: value for key, value in of.items() if value is not None}
    return Case(known, len(rows), sum(1 for row in rows if row.get("problem")), figures)


def _numbers(row: Row) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in row.items()
        if name not in CASE and name not in _LABELS and isinstance(value, int | float) and not isinstance(value, bool)
    }


def limits_of(cases: Iterable[Case], targets: Iterable[Target]) -> list[Limit]:
    """The limits of all cases that were run; a case with failed rounds misses its limits."""
    found = []
    for target in targets:
        fitting = [case for case in cases if all(case.of.get(key) == value for key, value in target.of.items())]
        for case in fitting:
            figure = case.figures.get(target.figure)
            seen = None if figure is None or case.failed else getattr(figure, target.statistic)
            found.append(Limit(target.name, seen, target.most))
    return found


def ratios_of(cases: Sequence[Case], figure: str) -> list[Ratio]:
    """Ratios of Tradewind's figure to every other side's in the same world, without delay."""

    def seen(case: Case) -> float | None:
        return case.figures[figure].median if figure in case.figures else None

    ours = {
        (case.of.get("world"), case.of.get("case")): seen(case)
        for case in cases
        if case.of.get("side") == "ours" and not case.of.get("round_trip_ms")
    }
    found = []
    for case in cases:
        mine, theirs = ours.get((case.of.get("world"), case.of.get("case"))), seen(case)
        if case.of.get("side") != "ours" and mine is not None and theirs:
            name = f"{figure} world={case.of['world']} {case.of['case']} against {case.of['side']}"
            found.append(Ratio(name, mine, theirs, round(mine / theirs, 4)))
    return found


def slopes(cases: Sequence[Case], figures: Sequence[str]) -> dict[str, float]:
    """Round trips of each figure, from cases that were run both without and with a delay."""
    by_kind: dict[tuple[Any, ...], dict[float, Case]] = {}
    for case in cases:
        kind = tuple(case.of.get(key) for key in CASE if key != "round_trip_ms")
        by_kind.setdefault(kind, {})[case.of.get("round_trip_ms") or 0.0] = case
    found = {}
    for kind, by_delay in by_kind.items():
        longest = max(by_delay)
        if longest == 0 or 0.0 not in by_delay:
            continue
        near, far = by_delay[0.0].figures, by_delay[longest].figures
        for name in figures:
            if name in near and name in far:
                of = " ".join(str(part) for part in kind if part is not None)
                found[f"{of} {name}"] = round((far[name].median - near[name].median) / longest, 2)
    return found


def result_of(
    name: str,
    *,
    rounds: Sequence[Row],
    targets: Sequence[Target],
    ratio: str | None = None,
    protocol: Mapping[str, Any] | None = None,
    distant: Sequence[str] = (),
    must_hold: Callable[[Row], bool] = lambda row: True,
) -> Result:
    """The result of a benchmark; every round of Tradewind must satisfy `must_hold`."""
    cases = cases_of(rounds)
    limits = limits_of(cases, targets)
    ours = [row for row in rounds if row.get("side", "ours") == "ours"]
    ok = (
        bool(ours)
        and all(limit.is_met for limit in limits)
        and all(not row.get("problem") and must_hold(row) for row in ours)
    )
    return Result(
        name,
        "ms",
        ok,
        tuple(limits),
        tuple(ratios_of(cases, ratio)) if ratio is not None else (),
        tuple(cases),
        {"protocol": dict(protocol or {}), "measured": slopes(cases, distant)},
        machine(),
        tuple(rounds),
    )


def machine() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }


def publish(result: Result, *, as_json: bool) -> int:
    if as_json:
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    else:
        _print(result)
    sys.stdout.flush()
    return 0 if result.ok else 1


def _print(result: Result) -> None:
    console = Console(soft_wrap=True)
    for case in result.cases:
        reported = " ".join(f"{name}={value}" for name, value in case.of.items())
        failed = f", {case.failed} FAILED" if case.failed else ""
        table = Table("figure", "median", "max", title=f"{result.name}: {reported} ({case.rounds} rounds{failed})")
        for name, figure in case.figures.items():
            table.add_row(name, f"{figure.median:.1f}", f"{figure.most:.1f}")
        console.print(table)
    for problem in dict.fromkeys(row["problem"] for row in result.rounds if row.get("problem")):
        console.print(f"problem: {problem}", markup=False)
    for name, value in result.round_trips["protocol"].items():
        console.print(f"round trips on the critical path, {name}: {value}", markup=False)
    for name, value in result.round_trips["measured"].items():
        console.print(f"round trips measured with delays, {name}: {value}", markup=False)
    for ratio in result.ratios:
        console.print(f"{ratio.figure}: {ratio.ours:.1f} / {ratio.peer:.1f} = {ratio.ratio:.4f}", markup=False)
    for limit in result.limits:
        seen = "-" if limit.ours is None else f"{limit.ours:.1f}"
        verdict = "ok" if limit.is_met else "MISSED"
        console.print(f"{limit.figure}: {seen} (at most {limit.target:g}): {verdict}", markup=False)
    console.print(f"{result.machine}: {'ok' if result.ok else 'MISSED'}", markup=False)
