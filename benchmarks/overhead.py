"""What the SDK costs in an undisturbed run, against plain DDP: two ranks, steps of about 10 ms.

Both train the same model in the same two processes of a whole stack, in alternating blocks of steps: DDP, SDK, SDK,
DDP. The ratio is that of the mean steps of each round. The A/A spread is how much two blocks of the same side differ; a
smaller difference is noise.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.live.fleet import LiveFleet, running
from benchmarks.live.report import Row, machine
from benchmarks.report import Result, publish

DESCRIPTION: Final = "mean step of the SDK against plain DDP in an undisturbed run, as a ratio"
_NAME: Final = "overhead"
_TARGET: Final = 1.02
_WORKERS: Final = 2
_ROUND_WITHIN_S: Final = 120.0


def measure(rounds: int, steps: int) -> list[Row]:
    script = Path(__file__).parent / "live" / "overhead_trainer.py"
    found: list[Row] = []
    with running(_WORKERS, [str(script), "--rounds", str(rounds), "--steps", str(steps)]) as fleet:
        for number in range(1, rounds + 1):
            found.append({"number": number, **figures(_blocks(fleet, number)), "load": machine()["load"]})
            row = found[-1]
            reported = f"{row['sdk_ms']:.2f} / {row['ddp_ms']:.2f} ms = {row['ratio']:.4f}, A/A {row['a_a']:.4f}"
            print(f"round {number} of {rounds}: {reported}", file=sys.stderr, flush=True)
    return found


def _blocks(fleet: LiveFleet, number: int) -> list[dict[str, Any]]:
    file = fleet.folder / f"round-{number}.json"
    fleet.wait(file.exists, f"round {number} of both sides", _ROUND_WITHIN_S)
    blocks: list[dict[str, Any]] = msgspec.json.decode(file.read_bytes())
    return blocks


def figures(blocks: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Figures of a round: mean and median steps of both sides, and the difference between the two blocks of DDP."""
    by_side: dict[str, list[list[float]]] = {"ddp": [], "sdk": []}
    for block in blocks:
        by_side[block["side"]].append(block["steps_ms"])
    mean = {side: statistics.fmean(map(statistics.fmean, own)) for side, own in by_side.items()}
    middle = {side: statistics.median([took for own in sets for took in own]) for side, sets in by_side.items()}
    first, last = (statistics.fmean(own) for own in by_side["ddp"])
    return {
        "ddp_ms": mean["ddp"],
        "sdk_ms": mean["sdk"],
        "ratio": mean["sdk"] / mean["ddp"],
        "median_ratio": middle["sdk"] / middle["ddp"],
        "a_a": max(first, last) / min(first, last),
    }


def result_of(rounds: Sequence[Row]) -> Result:
    """The result from the medians; the target is at least the A/A spread."""
    ratio = statistics.median(row["ratio"] for row in rounds)
    spread = statistics.median(row["a_a"] for row in rounds)
    ours, peer = (statistics.median(row[side] for row in rounds) for side in ("sdk_ms", "ddp_ms"))
    target = max(_TARGET, spread)
    return Result(_NAME, "ms", ours, peer, ratio, target, ratio <= target, tuple(rounds))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{_NAME}", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="rounds of two blocks of each side  [12]")
    parser.add_argument("--steps", type=int, default=100, help="steps of a block  [100]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.steps < 1:
        parser.error("--rounds and --steps must be at least 1")
    return publish(result_of(measure(options.rounds, options.steps)), as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
