"""Runs many seeds of a simulation to find a bug, and replays one seed with its story."""

import argparse
import warnings
from collections.abc import Callable, Sequence
from typing import Protocol

SEARCHED = 500


class Result(Protocol):
    @property
    def story(self) -> Sequence[str]: ...

    @property
    def broken(self) -> str | None: ...


def is_found(simulate: Callable[[int], Result], *, likely: int) -> bool:
    """True if one of the seeds finds the bug; the likely seed runs first. Warns if another one must be recorded."""
    finder = next((seed for seed in (likely, *range(SEARCHED)) if simulate(seed).broken is not None), None)
    if finder not in (likely, None):
        warnings.warn(f"seed {likely} does not find this bug, seed {finder} does: record that seed", stacklevel=2)
    return finder is not None


def replay(program: str, description: str | None, simulate: Callable[[int], Result]) -> int:
    """Replays a seed, or many; returns the exit code."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--seed", type=int, default=7, help="the seed to replay, or the first of many")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, one after the other")
    options = parser.parse_args()
    failed = []
    for seed in range(options.seed, options.seed + options.seeds):
        result = simulate(seed)
        if options.seeds == 1:
            print("\n".join(result.story))
        if result.broken is not None:
            failed.append(seed)
            print(f"seed {seed}: {result.broken}")
    print(f"{options.seeds - len(failed)} of {options.seeds} seeds hold" + (f"; broken: {failed}" if failed else ""))
    return 1 if failed else 0
