"""One mutant in one process, which imports the project's packages for the first time, with one module mutated.

The parent has imported the other packages (pytest, hypothesis, msgspec …), so a child is ready in about a second.
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import Phase, settings

from tests.mutants.cores import ROOT, Core, tests_of

OURS = ("messages", "runtime", "controlplane", "agents", "tradewind", "simulator", "tests")
MEMORY_BYTES = 4 << 30
"""Most memory of a trial in addition to its parent's."""
EXAMPLES = 50
"""Examples of a property test that does not say how many it needs."""


@dataclass(frozen=True, slots=True)
class Mutated:
    """A module and what is executed in its place."""

    name: str
    path: Path
    tree: ast.Module


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def trial(core: Core, mutated: Mutated | None, limit_s: int, result: Connection) -> None:
    """Sends what killed the mutant, or an empty text; sends nothing if it exceeds its time or memory."""
    _silence()
    memory_bytes = _memory_bytes() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    _forget_ours()
    if mutated is not None:
        sys.meta_path.insert(0, _Planter(mutated))
    try:
        killer = _failing_test(core, mutated) or _failing_seed(core)
    except BaseException:  # noqa: BLE001 – whatever the mutant raises has killed it
        killer = traceback.format_exc(limit=-1)
    result.send((killer, _not_ours()))


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.stdout = sys.stderr = open(nowhere, "w", closefd=False)  # noqa: SIM115 – until the process ends


def _memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _forget_ours() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
        del sys.modules[name]


def _not_ours() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] not in OURS]


class _Planter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module only, and executes the mutated code for it."""

    def __init__(self, mutated: Mutated) -> None:
        self._mutated = mutated

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutated.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._mutated.path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutated.tree, self._mutated.path, "exec"), module.__dict__)


class _Watcher:
    """A plugin of pytest that sets hypothesis up and remembers the first failure."""

    failed = ""

    def pytest_sessionstart(self) -> None:
        settings.register_profile(
            "mutants",
            derandomize=True,
            deadline=None,
            max_examples=EXAMPLES,
            phases=(Phase.explicit, Phase.generate),  # shrinking a failing example takes long and is not needed
            report_multiple_bugs=False,
        )
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or f"import of {report.nodeid}"


def _failing_test(core: Core, mutated: Mutated | None) -> str:
    watcher = _Watcher()
    files = tests_of(core, mutated.name if mutated is not None else "")
    # Without conftest.py, which would import torch and nats.
    options = ["-x", "-q", "--noconftest", "--tb=no", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    code = pytest.main([*options, "-p", "no:cacheprovider", "-p", "no:xdist", *files], plugins=[watcher])
    return "" if code == 0 else watcher.failed or f"pytest ended with {code}"


def _failing_seed(core: Core) -> str:
    for module, function, count in core.seeds:
        simulate = getattr(importlib.import_module(module), function)
        for seed in range(count):
            broken = simulate(seed).broken
            if broken is not None:
                return f"{module} seed {seed}: {broken}"
    return ""
