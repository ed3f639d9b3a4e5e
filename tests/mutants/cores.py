"""The mutated cores, and the tests that must detect the mutants."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LEFT_OUT = {
    "invariants.py",  # what tests check, not what the core does
    "shell.py",  # not the core
    "texts.py",  # texts for people
    "explanations.py",
}


@dataclass(frozen=True, slots=True)
class Core:
    name: str
    folder: str
    tests: tuple[str, ...]
    """Files, or folders of files; they start no process and need no torch."""
    seeds: tuple[tuple[str, str, int], ...] = ()
    """Simulations after the tests: module, function, and how many seeds."""


JOINT = ("tests.simulation.run", "simulate", 20)
CORES = (
    Core("job", "controlplane/job", ("tests/job",), (JOINT,)),
    Core(
        "allocator",
        "controlplane/allocator",
        ("tests/allocator",),
        (
            JOINT,
            ("tests.allocator.simulation", "simulate", 20),
            ("tests.allocator.planned_simulation", "simulate_planned", 5),
        ),
    ),
    Core(
        "trainer",
        "tradewind/sdk/trainer",
        ("tests/sdk/test_trainer_core.py", "tests/sdk/test_trainer_limits.py", "tests/sdk/test_shares.py"),
        (JOINT,),
    ),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """One mutant of one core: the number of a site in a file."""

    core: Core
    path: Path
    number: int


def choose(cores: Sequence[Core], sites: dict[Path, int], count: int, seed: int) -> list[Choice]:
    """The same number of mutants of each core. The order is mixed, so that a part of the run is a sample too."""
    chance = random.Random(seed)
    chosen: list[Choice] = []
    for place, core in enumerate(cores):
        share = count // len(cores) + (place < count % len(cores))
        every = [Choice(core, path, number) for path in modules(core) for number in range(sites[path])]
        chosen += chance.sample(every, min(share, len(every)))
    chance.shuffle(chosen)
    return chosen


def modules(core: Core) -> list[Path]:
    return [path for path in sorted((ROOT / core.folder).rglob("*.py")) if path.name not in LEFT_OUT]


def tests_of(core: Core, module: str) -> list[str]:
    """Files that name the mutated module first; property tests, which take longest, last. Seeds are run apart."""
    files = [file for entry in core.tests for file in _test_files(ROOT / entry)]
    texts = {file: file.read_text() for file in files}
    files.sort(key=lambda file: ("from hypothesis" in texts[file], f"{module} import" not in texts[file]))
    return [str(file) for file in files if "def test_a_planted_bug_is_caught" not in texts[file]]


def _test_files(entry: Path) -> list[Path]:
    return sorted(entry.glob("test_*.py")) if entry.is_dir() else [entry]
