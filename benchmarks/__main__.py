"""Lists the benchmarks and runs them. A module of this folder with a DESCRIPTION and a main is a benchmark."""

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from typing import cast

from msgspec import Struct

import benchmarks


class Benchmark(Struct, frozen=True):
    name: str
    description: str
    main: Callable[[Sequence[str]], int]


def all_benchmarks() -> list[Benchmark]:
    names = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name != "__main__")
    modules = ((name, importlib.import_module(f"benchmarks.{name}")) for name in names)
    return [
        Benchmark(name, module.DESCRIPTION, cast(Callable[[Sequence[str]], int], module.main))
        for name, module in modules
        if hasattr(module, "DESCRIPTION") and hasattr(module, "main")
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="run only these (default: all)")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and run none")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each benchmark, one per line")
    options = parser.parse_args(arguments)

    known = all_benchmarks()
    unknown = sorted(set(options.names) - {benchmark.name for benchmark in known})
    if unknown:
        parser.error(f"unknown benchmarks: {', '.join(unknown)}; see python -m benchmarks --list")
    chosen = [benchmark for benchmark in known if not options.names or benchmark.name in options.names]
    for benchmark in chosen:
        print(f"{benchmark.name}: {benchmark.description}", file=sys.stdout if options.list else sys.stderr, flush=True)
    if options.list:
        return 0
    codes = [benchmark.main(["--json"] if options.json else []) for benchmark in chosen]
    return max(codes, default=0)


if __name__ == "__main__":
    raise SystemExit(main())
