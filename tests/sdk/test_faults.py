"""A change during a change: every phase, with a death in it. Whatever happens, no sample is lost or taken twice."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sdk.coordinator import Coordinator
from tests.sdk.test_run import check
from tests.sdk.trainee import Recipe
from tradewind.sdk.faults import VARIABLE

STEPS = 16
LONG = 120
"""From the 20th on they crawl until everybody has joined: 20 s at least."""


def recipe_of(folder: Path) -> Recipe:
    return Recipe(str(folder), steps=STEPS, compute_s=0.01)


@pytest.mark.parametrize("phase", ["compute", "before_sum", "in_sum", "after_sum", "applied"])
async def test_a_rank_dies_in_any_phase_of_a_step(tmp_path: Path, phase: str) -> None:
    recipe = recipe_of(tmp_path)
    async with Coordinator(tmp_path, recipe) as coordinator:
        await coordinator.start(3, [{}, {VARIABLE: f"1:5:{phase}:SIGKILL"}, {}])
        await coordinator.finished()
    check(tmp_path, recipe, finishers=2)


@pytest.mark.parametrize("second", ["1:5:repair", "0:5:repair", "1:5:building", "1:5:in_sum", "0:5:after_sum"])
async def test_another_dies_while_the_first_death_is_being_repaired(tmp_path: Path, second: str) -> None:
    recipe = recipe_of(tmp_path)
    async with Coordinator(tmp_path, recipe) as coordinator:
        coordinator.hold_before(5)
        await coordinator.start(4, [{VARIABLE: f"{second}:SIGKILL"}] * 3 + [{}])
        await coordinator.held()
        coordinator.members[3].kill()
        await coordinator.until(lambda: len(coordinator.worlds) > 1, "a repair begins")
        coordinator.hold_before(None)
        await coordinator.finished()
        survivors = len(coordinator.members)
    check(tmp_path, recipe, finishers=survivors)
    assert survivors < 3


@pytest.mark.parametrize(
    ("who", "phase"),
    [
        ("leaver", "in_sum"),
        ("leaver", "switched"),
        ("stayer", "building"),
        ("stayer", "in_sum"),
        ("stayer", "after_sum"),
        ("stayer", "switched"),
    ],
)
async def test_somebody_dies_while_a_world_is_handed_over(tmp_path: Path, who: str, phase: str) -> None:
    recipe = recipe_of(tmp_path)
    rank = {("leaver", "in_sum"): 0, ("leaver", "switched"): 0}.get((who, phase), 1)
    # After the switch the stayer that was rank 1 is rank 0; a builder already has its new rank.
    rank_then = 0 if (who, phase) in {("stayer", "building"), ("stayer", "switched")} else rank
    step = 6 if phase == "switched" else 5
    fault = {VARIABLE: ",".join(f"{rank_then}:{at}:{phase}:SIGKILL" for at in range(step, step + 3))}
    async with Coordinator(tmp_path, recipe) as coordinator:
        coordinator.hold_before(5)
        await coordinator.start(3, [fault if place == rank else {} for place in range(3)])
        await coordinator.held()
        leaver = coordinator.members[0]
        planned = coordinator.begin_change(leave=[leaver])
        coordinator.hold_before(None)
        await planned
        await coordinator.finished()
    told = check(tmp_path, recipe, finishers=len([t for t in coordinator.members if t.process.exitcode == 0]))
    assert told


@pytest.mark.parametrize(
    ("who", "phase"),
    [
        ("joiner", "building"),
        ("joiner", "join_entered"),
        ("joiner", "join_loaded"),
        ("joiner", "join_level"),
        ("survivor", "building"),
        ("survivor", "switched"),
        ("survivor", "in_sum"),
    ],
)
async def test_somebody_dies_during_a_join_and_the_joiner_is_taken_up_again(
    tmp_path: Path, who: str, phase: str
) -> None:
    recipe = Recipe(str(tmp_path), steps=LONG, compute_s=0.01)
    fault = {VARIABLE: ",".join(f"*:{step}:{phase}:SIGKILL" for step in range(LONG + 1))}
    after_start = {VARIABLE: ",".join(f"1:{step}:{phase}:SIGKILL" for step in range(5, LONG + 1))}
    async with Coordinator(tmp_path, recipe) as coordinator:
        coordinator.hold_before(5)
        await coordinator.start(3, [{}, after_start if who == "survivor" else {}, {}])
        joiner = await coordinator.warm(fault if who == "joiner" else None)
        spare = await coordinator.warm() if who == "joiner" else joiner
        await coordinator.held()
        coordinator.crawl_from(20)
        coordinator.hold_before(None)
        await coordinator.join_all([joiner])
        await coordinator.join_all([spare])
        coordinator.crawl_from(None)
        await coordinator.finished()
        finishers = len(coordinator.members)
    check(tmp_path, recipe, finishers=finishers)
    assert finishers == (4 if who == "joiner" else 3)


async def joined_by_one(
    coordinator: Coordinator, joiner_env: dict[str, str] | None = None, spoil: Callable[[], None] = lambda: None
) -> None:
    """Three train, a fourth joins them, and all finish."""
    coordinator.hold_before(5)
    await coordinator.start(3)
    joiner = await coordinator.warm(joiner_env)
    await coordinator.held()
    coordinator.crawl_from(20)
    coordinator.hold_before(None)
    spoil()
    await coordinator.join_all([joiner])
    coordinator.crawl_from(None)
    await coordinator.finished()


async def test_a_shard_that_is_lost_without_a_word_only_delays_a_join(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=LONG, compute_s=0.01, loses_a_shard=True)
    async with Coordinator(tmp_path, recipe) as coordinator:
        await joined_by_one(coordinator)
        assert ("repair", 3) in coordinator.worlds
    check(tmp_path, recipe, finishers=4)


async def test_a_survivor_that_cannot_build_the_next_world_says_so_and_the_joiner_is_taken_up_again(
    tmp_path: Path,
) -> None:
    recipe = Recipe(str(tmp_path), steps=LONG, compute_s=0.01)
    async with Coordinator(tmp_path, recipe) as coordinator:
        await joined_by_one(coordinator, spoil=lambda: coordinator.misplace(coordinator.members[1]))
        assert ("repair", 3) in coordinator.worlds
    check(tmp_path, recipe, finishers=4)


async def test_a_joiner_that_makes_the_others_wait_each_time_is_given_more_time(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=LONG, compute_s=0.01)
    slow = {VARIABLE: ",".join(f"*:{step}:join_loaded:SIGSTOP" for step in range(LONG + 1))}
    async with Coordinator(tmp_path, recipe) as coordinator, asyncio.TaskGroup() as tasks:
        waking = tasks.create_task(coordinator.wake_all(after_s=1.0), name="waking")
        await joined_by_one(coordinator, slow)
        waking.cancel()
    check(tmp_path, recipe, finishers=4)
