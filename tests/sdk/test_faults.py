"""A change during a change: every phase, with a death in it. Whatever happens, no sample is lost or taken twice.

Each table says who dies, in which step and in which phase of it. Checkpoints are on: whoever writes them dies too.
"""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sdk.coordinator import Coordinator
from tests.sdk.processes import TrainerProcess
from tests.sdk.test_run import check
from tests.sdk.trainee import Recipe
from tradewind.sdk.diagnostics import FAULTS

STEPS = 16
LONG = 120
"""From the 20th on they crawl until everybody has joined: 20 s at least."""


def recipe_of(folder: Path, steps: int = STEPS) -> Recipe:
    return Recipe(str(folder), steps=steps, compute_s=0.01, checkpoints=True, checkpoint_every=2)


def dies(*faults: str) -> dict[str, str]:
    return {FAULTS: ",".join(f"{fault}:SIGKILL" for fault in faults)}


async def everything_ended(coordinator: Coordinator, *victims: TrainerProcess) -> list[TrainerProcess]:
    """The victims were killed, all others of the last world came to its end, and nobody failed. Tells who did."""
    await coordinator.finished()
    await coordinator.until(lambda: not any(victim.alive for victim in victims), "the victims' death")
    assert [victim.process.exitcode for victim in victims] == [-signal.SIGKILL] * len(victims)
    done = [trainer for trainer in coordinator.trainers if trainer.has_finished() and trainer not in victims]
    await coordinator.until(lambda: not any(trainer.alive for trainer in done), "the end of those who have finished")
    finishers = [trainer for trainer in coordinator.trainers if not trainer.alive and trainer not in victims]
    assert [trainer.process.exitcode for trainer in finishers] == [0] * len(finishers)
    return finishers


@pytest.mark.parametrize(
    ("rank", "step", "phase"),
    [
        (1, 5, "compute"),
        (1, 5, "before_sum"),
        (1, 5, "in_sum"),
        (1, 5, "after_sum"),
        (1, 5, "applied"),
        (0, 5, "applied"),
        (1, STEPS, "before_sum"),
        (0, STEPS, "in_sum"),
        (1, STEPS, "after_sum"),
    ],
)
async def test_a_rank_dies_in_any_phase_of_a_step_and_of_the_end(
    tmp_path: Path, rank: int, step: int, phase: str
) -> None:
    recipe = recipe_of(tmp_path)
    async with Coordinator(tmp_path, recipe) as coordinator:
        await coordinator.start(3, [dies(f"{rank}:{step}:{phase}") if place == rank else {} for place in range(3)])
        finishers = await everything_ended(coordinator, coordinator.trainers[rank])
    check(tmp_path, recipe, finishers=2)
    assert len(finishers) == 2


@pytest.mark.parametrize(
    ("rank", "phase"), [(1, "repair"), (0, "repair"), (1, "building"), (1, "in_sum"), (0, "after_sum")]
)
async def test_another_dies_while_the_first_death_is_being_repaired(tmp_path: Path, rank: int, phase: str) -> None:
    recipe = recipe_of(tmp_path)
    async with Coordinator(tmp_path, recipe) as coordinator:
        coordinator.hold_before(5)
        await coordinator.start(4, [dies(f"{rank}:5:{phase}") if place == rank else {} for place in range(4)])
        await coordinator.held()
        coordinator.trainers[3].kill()
        await coordinator.until(lambda: len(coordinator.worlds) > 1, "a repair begins")
        coordinator.hold_before(None)
        await everything_ended(coordinator, coordinator.trainers[rank], coordinator.trainers[3])
    check(tmp_path, recipe, finishers=2)


@pytest.mark.parametrize("victim", [None, 0, 1, 2], ids=["nobody", "the source", "the laggard", "another one"])
async def test_somebody_dies_while_one_is_given_the_sum_that_it_missed(tmp_path: Path, victim: int | None) -> None:
    recipe = replace(recipe_of(tmp_path), misses_sum_of=5, scaled=True)
    async with Coordinator(tmp_path, recipe) as coordinator:
        await coordinator.start(3, [dies(f"{rank}:5:catching_up") if rank == victim else {} for rank in range(3)])
        await everything_ended(coordinator, *(coordinator.trainers[rank] for rank in range(3) if rank == victim))
        assert coordinator.worlds[1] == ("repair", 3)
    told = check(tmp_path, recipe, finishers=3 if victim is None else 2)
    assert len({each["loss"] for each in told}) == 1


@pytest.mark.parametrize(
    ("who", "fault"),
    [
        ("leaver", "0:5:before_sum"),
        ("leaver", "0:5:in_sum"),
        ("leaver", "0:5:after_sum"),
        ("leaver", "0:5:applied"),
        ("leaver", "0:6:switched"),
        # A builder already has its new rank, and after the switch all have theirs.
        ("stayer", "0:5:building"),
        ("stayer", "1:5:before_sum"),
        ("stayer", "1:5:in_sum"),
        ("stayer", "1:5:after_sum"),
        ("stayer", "1:5:applied"),
        ("stayer", "0:6:switched"),
    ],
)
async def test_somebody_dies_while_a_world_is_handed_over(tmp_path: Path, who: str, fault: str) -> None:
    """Which happens after step 5, since everybody is ready for it by then."""
    recipe = recipe_of(tmp_path)
    async with Coordinator(tmp_path, recipe) as coordinator:
        coordinator.hold_before(5)
        await coordinator.start(3, [dies(fault) if who == "leaver" else {}, dies(fault) if who == "stayer" else {}, {}])
        leaver, stayer, other = coordinator.members
        await coordinator.held()
        planned = coordinator.begin_change(leave=[leaver])
        await coordinator.all_prepared()
        coordinator.hold_before(None)
        await planned
        finishers = await everything_ended(coordinator, leaver if who == "leaver" else stayer)
        if who == "stayer":
            # It is released, or it was needed again.
            assert leaver.alive != (leaver in finishers)
    check(tmp_path, recipe, finishers=len(finishers))
    assert [trainer for trainer in finishers if trainer is not leaver] == ([stayer] if who == "leaver" else []) + [
        other
    ]


@pytest.mark.parametrize(
    ("who", "fault"),
    [
        ("joiner", "3:0:building"),
        ("joiner", "3:0:join_entered"),
        ("joiner", "3:*:join_loaded"),
        ("joiner", "3:*:join_level"),
        ("survivor", "1:5:building"),
        ("survivor", "1:6:switched"),
        ("survivor", "1:6:before_sum"),
        ("survivor", "1:6:in_sum"),
        ("survivor", "1:6:after_sum"),
        ("survivor", "1:6:applied"),
    ],
)
async def test_somebody_dies_during_a_join_and_the_joiner_is_taken_up_again(
    tmp_path: Path, who: str, fault: str
) -> None:
    """All go over to its world after step 5."""
    recipe = recipe_of(tmp_path, LONG)
    async with Coordinator(tmp_path, recipe) as coordinator:
        coordinator.hold_before(5)
        await coordinator.start(3, [{}, dies(fault) if who == "survivor" else {}, {}])
        joiner = await coordinator.warm(dies(fault) if who == "joiner" else None)
        spare = await coordinator.warm() if who == "joiner" else joiner
        await coordinator.held()
        coordinator.crawl_from(20)
        joining = asyncio.create_task(coordinator.join_all([joiner]))
        await coordinator.all_prepared()
        coordinator.hold_before(None)
        await joining
        await coordinator.join_all([spare])
        coordinator.crawl_from(None)
        finishers = await everything_ended(coordinator, joiner if who == "joiner" else coordinator.trainers[1])
    check(tmp_path, recipe, finishers=len(finishers))
    assert [trainer.birth for trainer in finishers] == ([0, 1, 2, 4] if who == "joiner" else [0, 2, 3])


@pytest.mark.parametrize(
    ("who", "fault"),
    [
        ("newcomer", "2:0:repair"),
        ("newcomer", "2:*:join_loaded"),
        ("newcomer", "2:*:join_level"),
        ("survivor", "1:5:repair"),
        ("survivor", "1:6:in_sum"),
    ],
)
async def test_somebody_dies_in_a_repair_that_takes_a_newcomer_in(tmp_path: Path, who: str, fault: str) -> None:
    recipe = recipe_of(tmp_path, LONG)
    async with Coordinator(tmp_path, recipe) as coordinator:
        coordinator.hold_before(5)
        await coordinator.start(3, [{}, dies("1:5:before_sum"), dies(fault) if who == "survivor" else {}])
        _, first, second = coordinator.members
        newcomer = await coordinator.warm(dies(fault) if who == "newcomer" else None)
        coordinator.newcomers = [newcomer]
        await coordinator.held()
        coordinator.crawl_from(20)
        coordinator.hold_before(None)
        await coordinator.until(lambda: ("repair", 3) in coordinator.worlds, "a repair with a newcomer")
        await coordinator.join_all([newcomer])
        coordinator.crawl_from(None)
        finishers = await everything_ended(coordinator, first, newcomer if who == "newcomer" else second)
    check(tmp_path, recipe, finishers=2)
    assert [trainer.birth for trainer in finishers] == ([0, 2] if who == "newcomer" else [0, 3])


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
    slow = {FAULTS: ",".join(f"*:{step}:join_loaded:SIGSTOP" for step in range(LONG + 1))}
    async with Coordinator(tmp_path, recipe) as coordinator, asyncio.TaskGroup() as tasks:
        waking = tasks.create_task(coordinator.wake_all(after_s=1.0), name="waking")
        await joined_by_one(coordinator, slow)
        waking.cancel()
    check(tmp_path, recipe, finishers=4)
