"""The order of test files: the longest first, so that a run does not end with one busy process.

Files that compute alternate with files that wait, so that every core has work. The trials of mutants come first: they
are forks of the test process, which has no threads yet.
"""

from pathlib import Path

LONGEST_FIRST = (
    "mutants/test_mutants",
    "e2e/test_demo_cloud",
    "e2e/test_live",
    "simulation/test_simulation",
    "e2e/test_readme",
    "e2e/test_budget",
    "e2e/test_demo",
    "sdk/test_faults",
    "e2e/test_faults",
    "cluster/test_controller",
    "e2e/test_master_in_a_round",
    "allocator/test_planned_simulation",
    "e2e/test_reload",
    "sdk/test_run",
    "e2e/test_run",
    "cli/test_reap",
    "e2e/test_mistakes",
    "examples/test_char_transformer",
    "simulation/test_live",
    "kubernetes/test_faults",
    "allocator/test_simulation",
    "capacity/test_crash",
    "kubernetes/test_region",
    "cli/test_client",
    "kubernetes/test_controller",
    "ledger/test_on_simulator",
    "budget/test_never_overspent",
    "clouds/test_contract",
    "lease/test_keeper",
    "clouds/test_gke_faults",
    "host/test_endings",
    "kubernetes/test_chaos",
)
_PLACES = {name: place for place, name in enumerate(LONGEST_FIRST)}


def place_of(file: Path) -> int:
    """The position of a file; unlisted files come last, in their own order."""
    return _PLACES.get(f"{file.parent.name}/{file.stem}", len(_PLACES))
