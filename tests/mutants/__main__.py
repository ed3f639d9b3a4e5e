"""`python -m tests.mutants --seed 7` mutates the cores of job, allocator and trainer and lists mutants that survive."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.mutants.cores import CORES, Core, choose, modules
from tests.mutants.run import BrokenBaseline, Verdict, limits, run
from tests.mutants.sites import count_sites

KILLED_AT_LEAST = 0.9


def main(arguments: Sequence[str] | None = None, every: Sequence[Core] = CORES) -> int:
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=7, help="chooses the mutants (default 7)")
    parser.add_argument("--count", type=int, default=300, help="how many mutants, evenly over the cores (default 300)")
    parser.add_argument("--core", choices=[core.name for core in every], help="mutate this core only")
    parser.add_argument("--processes", type=int, default=2, help="how many at a time (default 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every verdict here")
    options = parser.parse_args(arguments)
    cores = [core for core in every if options.core in (None, core.name)]
    sites = {path: count_sites(path.read_text()) for core in cores for path in modules(core)}
    choices = choose(cores, sites, options.count, options.seed)
    print(f"seed {options.seed}: {len(choices)} of {sum(sites.values())} mutants", flush=True)
    began_s = time.monotonic()
    done = 0

    def tell(verdict: Verdict) -> None:
        nonlocal done
        done += 1
        state = f"killed by {verdict.killer.splitlines()[-1]}" if verdict.killer else "SURVIVED"
        print(f"{done}/{len(choices)} {time.monotonic() - began_s:.0f} s {verdict}: {state}"[:240], file=sys.stderr)

    try:
        limits_s = limits(cores)
    except BrokenBaseline as error:
        print(error, file=sys.stderr)
        return 1
    verdicts = run(choices, limits_s, options.processes, tell)
    killed = _report(verdicts, time.monotonic() - began_s)
    if options.json is not None:
        found = {"seed": options.seed, "killed": killed, "verdicts": [asdict(verdict) for verdict in verdicts]}
        options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False))
    return 0 if killed >= KILLED_AT_LEAST else 1


def _report(verdicts: Sequence[Verdict], took_s: float) -> float:
    """The share that was killed."""
    survivors = sorted((verdict for verdict in verdicts if not verdict.killer), key=lambda each: (each.path, each.line))
    for verdict in survivors:
        print(f"survived  {verdict}")
    for core in dict.fromkeys(verdict.core for verdict in verdicts):
        of_core = [verdict for verdict in verdicts if verdict.core == core]
        print(f"{core}: {_share(of_core):.1%} of {len(of_core)} killed")
    print(f"{_share(verdicts):.1%} of {len(verdicts)} mutants killed in {took_s / 60:.1f} min")
    return _share(verdicts)


def _share(verdicts: Sequence[Verdict]) -> float:
    return sum(bool(verdict.killer) for verdict in verdicts) / len(verdicts)


if __name__ == "__main__":
    sys.exit(main())
