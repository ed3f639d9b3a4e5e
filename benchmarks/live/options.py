"""The options that the benchmarks of changing worlds share."""

import argparse
from collections.abc import Sequence
from typing import Final

WORLDS: Final = "2,4,8"
DELAYS_MS: Final = "0,40,100"
DELAYED_WORLD: Final = 4


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(",") if part)


def whole_numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def parser_of(name: str, about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--rounds", type=int, default=8, help="rounds of each case  [8]")
    parser.add_argument(
        "--worlds",
        type=whole_numbers,
        default=whole_numbers(WORLDS),
        metavar="W,W",
        help=f"numbers of ranks  [{WORLDS}]",
    )
    parser.add_argument(
        "--delay-ms",
        type=numbers,
        default=numbers(DELAYS_MS),
        metavar="MS,MS",
        help=f"round trips to bus and store; those above 0 are measured with one world only  [{DELAYS_MS}]",
    )
    parser.add_argument(
        "--sleep-ms", type=float, default=50.0, help="simulated compute time of a rank in the whole world  [50]"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not options.worlds or min(options.worlds) < 2:
        parser.error("--worlds must be at least 2 each")
    if not options.delay_ms or min(options.delay_ms) < 0:
        parser.error("--delay-ms must be at least 0 each")


def delayed_world(worlds: Sequence[int]) -> int:
    return DELAYED_WORLD if DELAYED_WORLD in worlds else max(worlds)


def distances(worlds: Sequence[int], delays_ms: Sequence[float]) -> list[tuple[int, float]]:
    """Worlds and delays to measure: every world near the bus, and one of them far from it."""
    far = delayed_world(worlds)
    return [(world, delay_ms) for delay_ms in delays_ms for world in worlds if delay_ms == 0 or world == far]
