"""The report of a benchmark: Tradewind's figure against the peer's, as a JSON object or a table, and an exit code.

Without a peer's figure, Tradewind's figures are compared with limits.
"""

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table


class Limit(Struct, frozen=True):
    """A figure, such as `p99`, and its largest allowed value."""

    figure: str
    ours: float | None
    target: float

    @property
    def is_met(self) -> bool:
        return self.ours is not None and self.ours <= self.target


class Result(Struct, frozen=True):
    """The result of a benchmark. `ratio` is ours / peer.

    It is ok if every round of ours succeeded and the ratio is at most the target. Without a peer it is ok if every
    round succeeded and every limit is met; `ours` and `target` are then those of the first limit.
    """

    name: str
    unit: str
    ours: float | None
    peer: float | None
    ratio: float | None
    target: float
    ok: bool
    rounds: tuple[Mapping[str, Any], ...]
    limits: tuple[Limit, ...] = ()


def compare(
    name: str,
    unit: str,
    *,
    ours: Sequence[float | None],
    peer: Sequence[float | None],
    target: float,
    rounds: Sequence[Mapping[str, Any]],
) -> Result:
    """Compares medians. A round without a number failed, which is allowed for the peer only."""
    our_median = _median(ours)
    peer_median = _median(peer)
    ratio = our_median / peer_median if our_median is not None and peer_median else None
    ok = ratio is not None and ratio <= target and None not in ours
    return Result(name, unit, our_median, peer_median, ratio, target, ok, tuple(rounds))


def hold(
    name: str,
    unit: str,
    *,
    ours: Sequence[float | None],
    targets: Mapping[float, float],
    rounds: Sequence[Mapping[str, Any]],
) -> Result:
    """Compares percentiles with limits, without a peer. A round without a number fails the benchmark."""
    counted = [value for value in ours if value is not None]
    limits = tuple(Limit(f"p{share:g}", percentile(counted, share), target) for share, target in targets.items())
    ok = len(counted) == len(ours) and all(limit.is_met for limit in limits)
    return Result(name, unit, limits[0].ours, None, None, limits[0].target, ok, tuple(rounds), limits)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that `share` percent of the values do not exceed."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(len(values) * share / 100) - 1)]


def _median(values: Sequence[float | None]) -> float | None:
    counted = [value for value in values if value is not None]
    return statistics.median(counted) if counted else None


def publish(result: Result, *, as_json: bool) -> int:
    """Prints the result; returns exit code 0 if the target was met."""
    if as_json:
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    else:
        _print_table(result)
    sys.stdout.flush()
    return 0 if result.ok else 1


def _print_table(result: Result) -> None:
    console = Console()
    columns = list(dict.fromkeys(key for row in result.rounds for key in row))
    table = Table(title=result.name)
    for column in columns:
        table.add_column(column)
    for row in result.rounds:
        table.add_row(*(_shown(row.get(column)) for column in columns))
    console.print(table)
    verdict = "ok" if result.ok else "MISSED"
    if result.limits:
        figures = (f"{limit.figure} {_shown(limit.ours)} (at most {limit.target:g})" for limit in result.limits)
        console.print(f"{', '.join(figures)} {result.unit}; no peer's figure to compare with: {verdict}")
        return
    console.print(
        f"median ours {_shown(result.ours)} {result.unit}, peer {_shown(result.peer)} {result.unit}; "
        f"ratio {_shown(result.ratio)}, target at most {_shown(result.target)}: {verdict}"
    )


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
