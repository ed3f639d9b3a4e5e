"""Many seeds of a simulation: whether one of them finds a bug; and the command that replays one and tells its story."""

import argparse
from collections.abc import Callable, Sequence
from typing import Protocol

SEARCHED = 500


class Result(Protocol):
    @property
    def story(self) -> Sequence[str]: ...

    @property
    def broken(self) -> str | None: ...


def is_found(simulate: Callable[[int], Result], *, likely: int) -> bool:
    """Whether one of many seeds breaks. The one that did when this was written is tried first."""
    return any(simulate(seed).broken is not None for seed in (likely, *range(SEARCHED)))


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
