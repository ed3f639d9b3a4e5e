"""`python -m tests.lease --seed 7` replays one seed and tells its story; `--seeds 300` runs many."""

import argparse
import sys

from tests.lease.simulation import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.lease", description=__doc__)
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


if __name__ == "__main__":
    sys.exit(main())
