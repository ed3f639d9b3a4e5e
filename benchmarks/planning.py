"""How long a plan takes, how close it is to the best plan, and how it compares with simple policies.

Three parts: the time of a plan for 1, 10 and 100 zones, 3 accelerators and up to 1,000 nodes; the gap to the best
placement in small markets where all placements can be tried, with the same rules and limits; and days in generated
markets, or in a trace, with Tradewind's planner and simple policies side by side: dollars for 1,000 steps, and steps in
a day.
"""

import argparse
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from benchmarks import report
from benchmarks.plans.days import lived_through
from benchmarks.plans.exhaustive import ExhaustiveSearch
from benchmarks.plans.markets import PROFILE, Tick, generated, generated_day, market_at, traced
from benchmarks.plans.policies import POLICIES
from benchmarks.plans.situations import CASES, situation
from controlplane.catalog.shipped import shipped_links
from controlplane.planning.criteria import Criteria
from controlplane.planning.plan import anywhere, choose, plan
from controlplane.planning.scoring import Score, sort_key
from controlplane.planning.tuning import Tuning
from messages.criteria import Objective

DESCRIPTION: Final = "time of a plan, its gap to the best, dollars and steps against simple policies"
_NAME: Final = "planning"
ZONES_AND_MS: Final = {1: 50.0, 10: 50.0, 100: 500.0}
_NODES: Final = 1000
_SIZES: Final = ((4, 64), (16, 256), (100, _NODES))
_DAY_ZONES: Final = 6
_GAP: Final = 1e-6
"""Tolerance for rounding in the estimate."""
Row = dict[str, Any]


def timed(zones: int, rounds: int) -> Iterator[Row]:
    links = shipped_links()
    for seed in range(rounds):
        market = market_at(generated(zones, seed, max(4, 2 * _NODES // zones)), links)
        fewest, most = _SIZES[seed % len(_SIZES)]
        objective = (Objective.COST, Objective.THROUGHPUT)[seed % 2]
        criteria = Criteria(min_workers=fewest, max_workers=most, objective=objective)
        begin = time.perf_counter()
        made = plan(criteria, PROFILE, market)
        took_ms = (time.perf_counter() - begin) * 1000
        yield {
            "part": "time",
            "zones": zones,
            "seed": seed,
            "objective": objective.value,
            "nodes": sum(made.placement.values()),
            "ms": round(took_ms, 3),
            "proven": made.proven,
        }


def gaps(markets: int) -> Iterator[Row]:
    """Gaps under each limit of a plan, one by one and together, and with current capacity."""
    for seed, case in product(range(markets), CASES):
        objective = (Objective.COST, Objective.THROUGHPUT)[seed % 2]
        criteria, market, current = situation(case, seed, objective)
        search = ExhaustiveSearch(criteria, PROFILE, market, current, Tuning())
        best, _, _ = choose(search, search.best(anywhere(search)).best)
        made = plan(criteria, PROFILE, market, current)
        yield {
            "part": "gap",
            "case": case,
            "seed": seed,
            "objective": objective.value,
            "nodes": sum(made.placement.values()),
            "gap": _gap(criteria, made.score, None if best is None else best.score),
        }


def _gap(criteria: Criteria, ours: Score | None, best: Score | None) -> float:
    if ours is None or best is None:
        return 0.0 if ours is best else math.inf
    return max(0.0, sort_key(ours, criteria)[1] / sort_key(best, criteria)[1] - 1)


def days(markets: int, trace: Path | None) -> Iterator[Row]:
    links = shipped_links()
    given: list[tuple[int | str, list[Tick]]] = [(seed, generated_day(_DAY_ZONES, seed, 6)) for seed in range(markets)]
    if trace is not None:
        given.append((trace.name, traced(trace)))
    for (name, ticks), objective in product(given, (Objective.COST, Objective.THROUGHPUT)):
        criteria = Criteria(min_workers=4, max_workers=8, objective=objective)
        for policy, decide in POLICIES.items():
            lived = lived_through(decide, ticks, criteria, links)
            yield {
                "part": "day",
                "market": name,
                "objective": objective.value,
                "policy": policy,
                "usd_per_1000_steps": lived.usd_per_1000_steps,
                "steps_per_day": round(lived.steps_per_day, 1),
                "changes": lived.changes,
            }


def summary(rows: Sequence[Row]) -> list[Row]:
    """Medians for the table; the JSON has the raw rounds."""
    found: list[Row] = [
        {"part": "time", "case": f"{zones} zones", "p50_ms": report.percentile(_of(rows, "ms", zones=zones), 50)}
        for zones in ZONES_AND_MS
    ]
    markets = list(dict.fromkeys(row["market"] for row in rows if row["part"] == "day"))
    groups: dict[str, list[int | str]] = {"generated": [each for each in markets if isinstance(each, int)]}
    groups |= {each: [each] for each in markets if isinstance(each, str)}
    for (group, names), objective, policy in product(groups.items(), ("cost", "throughput"), POLICIES):
        here = [row for name in names for row in rows if _is_day(row, name, objective, policy)]
        dollars = [row["usd_per_1000_steps"] for row in here if row["usd_per_1000_steps"] is not None]
        found.append(
            {
                "part": f"day, {objective}",
                "case": f"{group}: {policy}",
                "usd_per_1000_steps": statistics.median(dollars) if dollars else None,
                "steps_per_day": statistics.median(row["steps_per_day"] for row in here) if here else None,
                "changes": statistics.median(row["changes"] for row in here) if here else None,
            }
        )
    return found


def _is_day(row: Row, market: int | str, objective: str, policy: str) -> bool:
    wanted = ("day", market, objective, policy)
    return (row["part"], row.get("market"), row.get("objective"), row.get("policy")) == wanted


def _result(rows: Sequence[Row]) -> report.Result:
    limits = [
        report.Limit(f"p50 ms, {zones} zones", report.percentile(_of(rows, "ms", zones=zones), 50), most)
        for zones, most in ZONES_AND_MS.items()
    ]
    limits.append(report.Limit("largest gap", max(_of(rows, "gap"), default=None), _GAP))
    limits += [
        report.Limit(f"{figure}, ours to {policy}", _ratio(rows, objective, figure, policy), 1.0)
        for objective, figure in ((Objective.COST, "usd_per_1000_steps"), (Objective.THROUGHPUT, "seconds_per_step"))
        for policy in POLICIES
        if policy != "ours"
    ]
    ok = all(limit.is_met for limit in limits)
    return report.Result(_NAME, "", limits[0].ours, None, None, limits[0].target, ok, tuple(rows), tuple(limits))


def _ratio(rows: Sequence[Row], objective: Objective, figure: str, policy: str) -> float | None:
    """The median ratio over the markets in which both could train."""
    ratios = []
    days = [row for row in rows if row["part"] == "day" and row["objective"] == objective.value]
    for name in dict.fromkeys(row["market"] for row in days):
        here = {row["policy"]: row for row in days if row["market"] == name}
        mine, theirs = (_figure(here[each], figure) for each in ("ours", policy))
        if mine is not None and theirs is not None:
            ratios.append(mine / theirs)
    return statistics.median(ratios) if ratios else None


def _figure(row: Row, figure: str) -> float | None:
    if figure == "usd_per_1000_steps":
        found: float | None = row[figure]
        return found
    return 1 / row["steps_per_day"] if row["steps_per_day"] else None


def _of(rows: Sequence[Row], figure: str, **wanted: object) -> list[float]:
    return [row[figure] for row in rows if figure in row and all(row.get(key) == wanted[key] for key in wanted)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=24, help="plans for each number of zones (%(default)s)")
    parser.add_argument("--markets", type=int, default=12, help="markets for the gap and for days (%(default)s)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="a CSV trace of the simulator, as one more market")
    options = parser.parse_args(arguments)
    rows = [row for zones in ZONES_AND_MS for row in timed(zones, options.rounds)]
    rows += gaps(options.markets)
    rows += days(options.markets, options.trace)
    result = _result(rows)
    shown = result if options.json else structs.replace(result, rounds=tuple(summary(rows)))
    return report.publish(shown, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
