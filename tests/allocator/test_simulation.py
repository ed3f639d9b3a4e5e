"""Seeds of the allocator under faults, and bugs planted on purpose that named seeds must find."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from controlplane.allocator import caps, learn_listing, learn_outcome, prospects, reconcile, timing
from controlplane.allocator.counting import expected
from controlplane.allocator.effects import ResizePool
from controlplane.allocator.reconcile import Turn
from controlplane.allocator.state import Allocator, Kind, Operation, Pool
from controlplane.clouds.interface import PoolRef
from tests.allocator.simulation import simulate

SEEDS = 150

EVERY_FAULT = {
    "message lost",
    "message duplicated",
    "message late (others overtake it)",
    "node preempted",
    "node noticed, then preempted",
    "several nodes preempted at once",
    "node came back under its name",
    "zone stocked out",
    "zone has machines again",
    "stockout inside an operation",
    "operation not waited for to its end",
    "quota inside an operation",
    "quota refused the call",
    "throttled",
    "request lost",
    "request late, and given up",
    "answer lost",
    "slow request",
    "listing failed",
    "listing late",
    "cluster cut off",
    "allocator crashed",
    "other number wanted",
    "pool deleted by a person",
    "shrink hit a running node",
    "region lost",
}


def test_caps_hold_under_faults_and_all_is_as_wanted_when_they_stop(capsys: pytest.CaptureFixture[str]) -> None:
    faults: Counter[str] = Counter()
    broken = []
    for seed in range(SEEDS):
        result = simulate(seed)
        faults += result.faults
        if result.broken is not None:
            broken.append(f"seed {seed}: {result.broken}")
    with capsys.disabled():
        print(f"\n{SEEDS} seeds; faults made: " + ", ".join(f"{n} × {kind}" for kind, n in faults.most_common()))
    assert not broken, "\n".join(broken)
    assert faults.keys() == EVERY_FAULT


def test_the_same_seed_tells_the_same_story() -> None:
    assert simulate(11).story == simulate(11).story


def _leave_a_pool_at_its_old_target_after_a_loss(patch: pytest.MonkeyPatch) -> None:
    """Another pool is raised, but the cloud is never told to give up the slot that it will fill again."""
    honest = Turn._lower

    def forgetful(turn: Turn, pool: Pool, target: int) -> None:
        if not pool.vacant and not any(node.lost_s is not None for node in pool.nodes.values()):
            honest(turn, pool, target)

    def optimistic(pools: Iterable[Pool], *, but: PoolRef | None = None) -> int:
        return sum(expected(pool) for pool in pools if pool.ref != but)

    patch.setattr(Turn, "_lower", forgetful)
    patch.setattr(caps, "total", optimistic)


def _forget_an_operation_whose_answer_was_lost(patch: pytest.MonkeyPatch) -> None:
    """No answer is taken for a no."""

    def careless(
        allocator: Allocator, pool: Pool, operation: Operation, detail: str, now_s: float, *, settles_s: float
    ) -> Allocator:
        later = learn_outcome._later(allocator, pool, detail, now_s)
        return replace(allocator, pools={**allocator.pools, pool.ref: later})

    patch.setattr(learn_outcome, "_unsure", careless)


def _check_the_cap_without_operations_under_way(patch: pytest.MonkeyPatch) -> None:
    """Only what the cloud confirmed is counted."""

    def confirmed(pools: Iterable[Pool], *, but: PoolRef | None = None) -> int:
        return sum(pool.target for pool in pools if pool.ref != but)

    patch.setattr(caps, "total", confirmed)
    patch.setattr(prospects, "expected", lambda pool: pool.target)


def _act_before_the_first_listing(patch: pytest.MonkeyPatch) -> None:
    """A restarted allocator takes it that there is nothing."""
    patch.setattr(Allocator, "synced", property(lambda allocator: True))
    patch.setattr(
        reconcile,
        "supplies_of",
        lambda allocator: prospects.supplies_of(
            replace(allocator, clusters=dict.fromkeys((offer.cluster for offer in allocator.offers), True))
        ),
    )


def _shrink_by_nodes_of_the_clouds_choice(patch: pytest.MonkeyPatch) -> None:
    """A smaller size is asked for where particular nodes should go."""

    def blunt(turn: Turn, pool: Pool, target: int) -> None:
        if pool.exists and turn._may_touch(pool) and target < pool.target:
            operation = turn._begin(pool, Kind.RESIZE, target)
            turn.effects.append(ResizePool(operation, pool.ref, target, "too many"))

    patch.setattr(Turn, "_lower", blunt)


def _give_up_slots_by_number(patch: pytest.MonkeyPatch) -> None:
    """The slot of a node that was taken may be filled again by then, and the cloud lets another one go."""
    by_name = Turn._remove

    def by_number(turn: Turn, pool: Pool, names: list[str]) -> None:
        if names and all(name in pool.vacant for name in names):
            size = pool.target - len(names)
            operation = turn._begin(pool, Kind.RESIZE, size, vacant=frozenset(names))
            turn.effects.append(ResizePool(operation, pool.ref, size, "they were taken"))
        else:
            by_name(turn, pool, names)

    patch.setattr(Turn, "_remove", by_number)


def _trust_a_listing_that_is_too_old(patch: pytest.MonkeyPatch) -> None:
    """What was listed before a request could arrive, or before it was answered, is taken for how it ended."""
    patch.setattr(learn_listing, "_is_newer", lambda pool, listing: pool.operation is not None)
    patch.setattr(learn_listing, "settles", lambda listing, doubt: True)
    patch.setattr(timing, "settles", lambda listing, doubt: True)


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (_leave_a_pool_at_its_old_target_after_a_loss, 0),
        (_forget_an_operation_whose_answer_was_lost, 11),
        (_check_the_cap_without_operations_under_way, 0),
        (_act_before_the_first_listing, 8),
        (_shrink_by_nodes_of_the_clouds_choice, 1),
        (_give_up_slots_by_number, 247),
        (_trust_a_listing_that_is_too_old, 23),
    ],
)
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the cloud's own account: the core's invariants, which may be wrong likewise, are not asked."""
    assert simulate(seed).broken is None
    monkeypatch.setattr("tests.allocator.actor.check", lambda before, after, effects: [])
    plant(monkeypatch)
    assert simulate(seed).broken is not None, "another seed may find it now: look through the first few hundred"
