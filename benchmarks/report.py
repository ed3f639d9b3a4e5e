"""What every benchmark ends with: ours against the peer's, one JSON object or a readable table, and an exit code."""

import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table


class Result(Struct, frozen=True):
    """`ratio` is ours / peer; a benchmark is ok if every round of ours counted and the ratio is at most the target."""

    name: str
    unit: str
    ours: float | None
    peer: float | None
    ratio: float | None
    target: float
    ok: bool
    rounds: tuple[Mapping[str, Any], ...]


def compare(
    name: str,
    unit: str,
    *,
    ours: Sequence[float | None],
    peer: Sequence[float | None],
    target: float,
    rounds: Sequence[Mapping[str, Any]],
) -> Result:
    """Medians side by side. A round without a number failed: forgiven to the peer, not to us."""
    our_median = _median(ours)
    peer_median = _median(peer)
    ratio = our_median / peer_median if our_median is not None and peer_median else None
    ok = ratio is not None and ratio <= target and None not in ours
    return Result(name, unit, our_median, peer_median, ratio, target, ok, tuple(rounds))


def _median(values: Sequence[float | None]) -> float | None:
    counted = [value for value in values if value is not None]
    return statistics.median(counted) if counted else None


def publish(result: Result, *, as_json: bool) -> int:
    """Print the result; the exit code says whether the target was met."""
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
    console.print(
        f"median ours {_shown(result.ours)} {result.unit}, peer {_shown(result.peer)} {result.unit}; "
        f"ratio {_shown(result.ratio)}, target at most {_shown(result.target)}: {verdict}"
    )


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
