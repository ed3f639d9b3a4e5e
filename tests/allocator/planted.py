"""Bugs that are planted on purpose: a simulation that misses them checks too little."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from controlplane.allocator import (
    caps,
    idle,
    learn_listing,
    learn_outcome,
    prospects,
    quota_room,
    reconcile,
    targets,
    timing,
)
from controlplane.allocator.counting import at_most, expected, held
from controlplane.allocator.effects import ResizePool
from controlplane.allocator.reconcile import Turn
from controlplane.allocator.state import Allocator, Kind, Operation, Plans, Pool
from controlplane.clouds.interface import PoolRef
from controlplane.planning.plan import Plan
from tests.allocator.simulation import Result

Plant = Callable[[pytest.MonkeyPatch], None]


def is_caught(
    plant: Plant, complaint: str, simulate: Callable[[int], Result], seeds: Iterable[int], patch: pytest.MonkeyPatch
) -> bool:
    """The expected complaint of the cloud's own account; the core's invariants, which may be wrong too, are off."""
    patch.setattr("tests.allocator.actor.check", lambda before, after, effects: [])
    plant(patch)
    return any(complaint in (simulate(seed).broken or "") for seed in seeds)


def leave_a_pool_at_its_old_target_after_a_loss(patch: pytest.MonkeyPatch) -> None:
    """Another pool is raised, but the lost slot, which the cloud will refill, is never removed."""
    honest = Turn._lower

    def forgetful(turn: Turn, pool: Pool, target: int) -> None:
        if not pool.vacant and not any(node.lost_s is not None for node in pool.nodes.values()):
            honest(turn, pool, target)

    def optimistic(pools: Iterable[Pool], *, but: PoolRef | None = None) -> int:
        return sum(expected(pool) for pool in pools if pool.ref != but)

    patch.setattr(Turn, "_lower", forgetful)
    patch.setattr(caps, "total", optimistic)
    patch.setattr(quota_room, "at_most", lambda pool, **_: expected(pool))


def forget_an_operation_whose_answer_was_lost(patch: pytest.MonkeyPatch) -> None:
    """A missing answer counts as a refusal."""

    def careless(
        allocator: Allocator, pool: Pool, operation: Operation, detail: str, now_s: float, *, settles_s: float
    ) -> Allocator:
        later = learn_outcome._later(allocator, pool, detail, now_s)
        return replace(allocator, pools={**allocator.pools, pool.ref: later})

    patch.setattr(learn_outcome, "_unsure", careless)


def check_the_cap_without_operations_under_way(patch: pytest.MonkeyPatch) -> None:
    """Only what the cloud confirmed is counted: nodes, quotas and money."""

    def confirmed(pools: Iterable[Pool], *, but: PoolRef | None = None) -> int:
        return sum(pool.target for pool in pools if pool.ref != but)

    patch.setattr(caps, "total", confirmed)
    patch.setattr(quota_room, "at_most", lambda pool, **_: pool.target)
    patch.setattr(prospects, "expected", lambda pool: pool.target)


def act_before_the_first_listing(patch: pytest.MonkeyPatch) -> None:
    """A restarted allocator assumes that no pools exist."""
    patch.setattr(Allocator, "synced", property(lambda allocator: True))
    patch.setattr(
        reconcile,
        "supplies_of",
        lambda allocator, now_s: prospects.supplies_of(
            replace(allocator, clusters=dict.fromkeys((offer.cluster for offer in allocator.offers), True)), now_s
        ),
    )


def shrink_by_nodes_of_the_clouds_choice(patch: pytest.MonkeyPatch) -> None:
    """A smaller size is requested although particular nodes should be removed."""

    def blunt(turn: Turn, pool: Pool, target: int) -> None:
        if pool.exists and turn._may_touch(pool) and target < pool.target:
            operation = turn._begin(pool, Kind.RESIZE, target)
            turn.effects.append(ResizePool(operation, pool.ref, target, "too many"))

    patch.setattr(Turn, "_lower", blunt)


def give_up_slots_by_number(patch: pytest.MonkeyPatch) -> None:
    """The slot of a lost node may be refilled by then, and the cloud removes another node."""
    by_name = Turn._remove

    def by_number(turn: Turn, pool: Pool, names: list[str], why: str = "") -> None:
        if names and all(name in pool.vacant for name in names):
            size = pool.target - len(names)
            operation = turn._begin(pool, Kind.RESIZE, size, vacant=frozenset(names))
            turn.effects.append(ResizePool(operation, pool.ref, size, "they were taken"))
        else:
            by_name(turn, pool, names, why)

    patch.setattr(Turn, "_remove", by_number)


def trust_a_listing_that_is_too_old(patch: pytest.MonkeyPatch) -> None:
    """A listing from before a request arrived, or was answered, counts as its outcome."""
    patch.setattr(learn_listing, "_is_newer", lambda pool, listing: pool.operation is not None)
    patch.setattr(learn_listing, "settles", lambda listing, doubt: True)
    patch.setattr(timing, "settles", lambda listing, doubt: True)


def count_a_quota_for_each_pool_alone(patch: pytest.MonkeyPatch) -> None:
    """Pools that share a quota each use all of it."""
    patch.setattr(quota_room, "may_come", lambda allocator, **only: {})


# Of planned jobs


def forget_that_noticed_machines_have_their_quota(patch: pytest.MonkeyPatch) -> None:
    """Replacements are requested while the nodes still exist."""
    patch.setattr(quota_room, "at_most", lambda pool, **_: at_most(pool))


def rest_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Nodes that were removed as too few to run with are requested again only when prices or criteria change."""
    patch.setattr(idle, "pause_after", lambda failures, first_s, most_s: math.inf)


def follow_a_remembered_plan(patch: pytest.MonkeyPatch) -> None:
    """An outdated plan is followed: after a shrink it requests the removed nodes again."""

    def remembered(plans: Plans) -> Plan | None:
        return plans.plan

    patch.setattr(targets, "current_plan", remembered)


def count_no_money_that_is_under_way(patch: pytest.MonkeyPatch) -> None:
    """The number of workers is counted correctly, but their money only by the plan, and only once they exist."""
    patch.setattr(caps, "_affordable", lambda demand, market, others, choice, fits, most: most)
    patch.setattr(prospects, "expected", held)
