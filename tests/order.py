"""Which files begin: the longest, so that a run does not end with one process at work.

Between those that wait stand some that compute, so that there is something to do for every core.
"""

from pathlib import Path

LONGEST_FIRST = (
    "e2e/test_demo_cloud",
    "simulation/test_simulation",
    "e2e/test_readme",
    "e2e/test_budget",
    "e2e/test_demo",
    "allocator/test_planned_simulation",
    "e2e/test_faults",
    "e2e/test_hot",
    "e2e/test_master_in_a_round",
    "simulation/test_live",
    "benchmarks/test_hot_commands",
    "simulation/test_allocation",
    "sdk/test_faults",
    "e2e/test_run",
    "cluster/test_controller",
    "examples/test_char_transformer",
    "sdk/test_run",
    "e2e/test_mistakes",
    "allocator/test_simulation",
    "kubernetes/test_faults",
    "cli/test_reap",
    "kubernetes/test_region",
    "budget/test_never_overspent",
    "kubernetes/test_controller",
    "ledger/test_on_simulator",
    "cli/test_client",
    "clouds/test_contract",
    "capacity/test_crash",
    "lease/test_keeper",
    "clouds/test_gke_faults",
    "host/test_endings",
    "kubernetes/test_chaos",
)
_PLACES = {name: place for place, name in enumerate(LONGEST_FIRST)}


def place_of(file: Path) -> int:
    """All others come after, as they are."""
    return _PLACES.get(f"{file.parent.name}/{file.stem}", len(_PLACES))
