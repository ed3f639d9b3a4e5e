"""Pools for tests of single rules: nodes in each state, and operations in progress."""

from dataclasses import replace
from typing import Any

from controlplane.allocator.demand import Demand
from controlplane.allocator.offers import pool_ref
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import (
    Allocator,
    Kind,
    Node,
    Operation,
    Pool,
)
from tests.allocator.stage import JOB, A, B, C, a_full_stage
from tests.planning.builders import (
    a_small_profile,
    some_criteria,
)

REF = pool_ref(JOB, A)
NOW_S = 1000.0
SETTINGS = AllocatorSettings()


def some_nodes(*changes: dict[str, Any]) -> dict[str, Node]:
    """Ready nodes `n1`, `n2` …, each with its changes."""
    nodes = {}
    for number, each in enumerate(changes, start=1):
        given = {"ready": True, "was_ready": True, **each}
        nodes[f"n{number}"] = Node(f"n{number}", f"u{number}", 0.0, **given)
    return nodes


def a_pool(*nodes: dict[str, Any], target: int | None = None, **changes: Any) -> Pool:
    found = some_nodes(*nodes)
    return Pool(REF, A, target=len(found) if target is None else target, exists=True, nodes=found, **changes)


def an_allocator(*pools: Pool, **changes: Any) -> Allocator:
    known = a_full_stage(A, B, C, wanted=3).allocator
    given = {"pools": {pool.ref: pool for pool in pools} or known.pools, **changes}
    return replace(known, **given)


def planned(allocator: Allocator, **criteria: Any) -> Allocator:
    demand = Demand(some_criteria(**{"min_workers": 2, "max_workers": 4, **criteria}), a_small_profile())
    return replace(allocator, demand=demand)


SOUND: dict[str, Any] = {}
LOST = {"lost_s": 1.0}
NOTICED = {"notice_until_s": 1.0}
ASIDE = {"sidelined_s": 1.0}
LEAVES = {"dismissed": "idle"}
BOTH = {"notice_until_s": 1.0, "lost_s": 2.0}
ALL = (SOUND, LOST, NOTICED, ASIDE, LEAVES, BOTH)


def operation(kind: Kind, before: int, target: int, **changes: Any) -> Operation:
    return Operation(1, kind, before, target, 0.0, **changes)
