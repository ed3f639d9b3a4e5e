"""Runs all mutants, a few at a time, and reports what killed each and which survive."""

import importlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkProcess

from tests.mutants.cores import ROOT, Choice, Core
from tests.mutants.sites import Mutant, mutate
from tests.mutants.trial import Mutated, module_name, trial

FORK = multiprocessing.get_context("fork")
BASELINE_LIMIT_S = 300
SLACK_S = 10
WAITS = 5
"""How many times its CPU limit a trial may take by the clock: others may use the machine, and a mutant may wait."""


class BrokenBaseline(Exception):
    """The tests fail without a mutant."""


@dataclass(frozen=True, slots=True)
class Verdict:
    core: str
    path: str
    line: int
    change: str
    killer: str
    """Empty if the mutant survived."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"


@dataclass(slots=True)
class _Trial:
    process: ForkProcess
    result: connection.Connection
    began_s: float
    limit_s: int

    def end(self) -> tuple[str, list[str]]:
        """Returns what killed the mutant, and the imported modules that are not part of the project."""
        if self.process.is_alive() and not self.result.poll():
            self.process.kill()
        found: tuple[str, list[str]] = ("no end within its time or memory", [])
        with suppress(EOFError):  # a trial that its limits ended sends nothing
            found = self.result.recv()
        self.process.join()
        self.result.close()
        return found


def _begin(core: Core, mutated: Mutated | None, limit_s: int) -> _Trial:
    receives, sends = FORK.Pipe(duplex=False)
    process = FORK.Process(target=trial, args=(core, mutated, limit_s, sends), daemon=True)
    process.start()
    sends.close()
    return _Trial(process, receives, time.monotonic(), limit_s)


def limits(cores: Sequence[Core]) -> dict[str, int]:
    """CPU limits of each core's trials in seconds: three times what they take without a mutant.

    Imports in this process the other modules that those trials imported, so that later trials find them."""
    found = {}
    for core in cores:
        began = _begin(core, None, BASELINE_LIMIT_S)
        began.result.poll(BASELINE_LIMIT_S * WAITS)
        killer, modules = began.end()
        if killer:
            raise BrokenBaseline(f"{core.name}: without a mutant, this fails: {killer}")
        found[core.name] = SLACK_S + 3 * int(time.monotonic() - began.began_s + 1)
        for name in modules:
            with suppress(ImportError):
                importlib.import_module(name)
    return found


def run(
    choices: Sequence[Choice], limits_s: dict[str, int], processes: int, tell: Callable[[Verdict], None]
) -> list[Verdict]:
    waiting = iter(choices)
    under_way: dict[connection.Connection, tuple[_Trial, Choice, Mutant]] = {}
    verdicts = []

    def begin_next() -> None:
        for choice in _next(waiting):
            mutant = mutate(choice.path.read_text(), choice.number)
            mutated = Mutated(module_name(choice.path), choice.path, mutant.tree)
            began = _begin(choice.core, mutated, limits_s[choice.core.name])
            under_way[began.result] = (began, choice, mutant)

    for _ in range(processes):
        begin_next()
    while under_way:
        ended = set(connection.wait(list(under_way), timeout=1.0))
        for result, (began, choice, mutant) in list(under_way.items()):
            if result in ended or time.monotonic() > began.began_s + WAITS * began.limit_s:
                del under_way[result]
                path = str(choice.path.relative_to(ROOT))
                verdicts.append(Verdict(choice.core.name, path, mutant.line, mutant.change, began.end()[0]))
                tell(verdicts[-1])
                begin_next()
    return verdicts


def _next(waiting: Iterator[Choice]) -> list[Choice]:
    following = next(waiting, None)
    return [] if following is None else [following]
