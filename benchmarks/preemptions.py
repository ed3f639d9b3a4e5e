"""Shared parts of the benchmarks of preemptions: options, rounds and the report."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks import report


class Preemption(Struct, frozen=True, omit_defaults=True):
    """One preemption. Subclasses add a duration, or None and a `problem` after a timeout."""

    number: int
    node: str

    def raw(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


def parser_of(name: str, about: str | None, *, preemptions: int, what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--preemptions", type=_at_least_one, default=preemptions, help=what)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def publish(
    name: str,
    rounds: Sequence[Preemption],
    took_ms: Sequence[float | None],
    targets_ms: Mapping[float, float],
    *,
    as_json: bool,
) -> int:
    result = report.hold(name, "ms", ours=took_ms, targets=targets_ms, rounds=[done.raw() for done in rounds])
    return report.publish(result, as_json=as_json)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
