"""`python -m tests.simulation --seed 7` replays one seed and tells its story; `--seeds 0-1999` runs many."""

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.run import simulate
from tests.simulation.settings import setting_of
from tests.simulation.system import Outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=7, help="the seed to replay")
    parser.add_argument("--seeds", type=_range, help="the first and the last of many seeds: 0-1999")
    parser.add_argument("--processes", type=int, default=2, help="that share many seeds")
    options = parser.parse_args()
    return _run_many(options.seeds, options.processes) if options.seeds is not None else _replay(options.seed)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _replay(seed: int) -> int:
    outcome = simulate(seed)
    print(f"seed {seed}: {setting_of(seed)}", *outcome.story, sep="\n")
    print(f"{outcome.generations} generations, {outcome.steps_taken} steps taken, {outcome.terms} terms of masters")
    print(_in_words(outcome.faults))
    return _result(1, [seed] if outcome.broken is not None else [])


def _run_many(seeds: range, processes: int) -> int:
    faults: Counter[str] = Counter()
    failed = []
    with ProcessPoolExecutor(processes) as pool:
        for outcome in pool.map(_without_story, seeds, chunksize=4):
            faults += outcome.faults
            if outcome.broken is not None:
                failed.append(outcome.seed)
                print(f"seed {outcome.seed}: {outcome.broken}", flush=True)
    print(_in_words(faults))
    return _result(len(seeds), failed)


def _without_story(seed: int) -> Outcome:
    outcome = simulate(seed)
    outcome.story.clear()
    return outcome


def _in_words(faults: Counter[str]) -> str:
    return "faults made: " + ", ".join(f"{count} × {kind}" for kind, count in faults.most_common())


def _result(count: int, failed: list[int]) -> int:
    print(f"{count - len(failed)} of {count} seeds hold" + (f"; broken: {failed}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
