"""The command of a simulation: replays one seed and tells its story, or runs many."""

import argparse
from collections.abc import Callable, Sequence
from typing import Protocol


class Result(Protocol):
    @property
    def story(self) -> Sequence[str]: ...

    @property
    def broken(self) -> str | None: ...


def replay(program: str, description: str | None, simulate: Callable[[int], Result]) -> int:
    """The exit code."""
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
