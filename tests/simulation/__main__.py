"""`python -m tests.simulation --seed 7` replays one seed and tells its story; `--seeds 300` runs many.

`--live` has a script that uses the SDK, so that worlds change in place."""

import argparse
import sys
from collections import Counter

from tests.simulation.live_system import simulate_live
from tests.simulation.system import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=7, help="the seed to replay, or the first of many")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--live", action="store_true", help="the script uses the SDK")
    options = parser.parse_args()
    faults: Counter[str] = Counter()
    failed = []
    for seed in range(options.seed, options.seed + options.seeds):
        outcome = simulate_live(seed)[0] if options.live else simulate(seed)
        faults += outcome.faults
        if outcome.broken is not None:
            failed.append(seed)
        if options.seeds == 1:
            print("\n".join(outcome.story))
            print(f"\nseed {seed}: {outcome.generations} generations, {outcome.steps_taken} steps taken")
        elif outcome.broken is not None:
            print(f"seed {seed}: {outcome.broken}")
    print("faults made: " + ", ".join(f"{count} × {kind}" for kind, count in faults.most_common()))
    print(f"{options.seeds - len(failed)} of {options.seeds} seeds hold" + (f"; broken: {failed}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
