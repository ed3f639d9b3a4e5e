"""Trainers die in each phase of a step, of a repair and of a world change: no sample is lost or used twice.

The faults have the form "rank:step:phase" of `tradewind.sdk.diagnostics`. Jobs of `recipe_of` write checkpoints, so
some victims are the rank that writes them.
"""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from messages.records import Phase
from tests.sdk.live_job import LiveJob
from tests.sdk.processes import TrainerProcess
from tests.sdk.test_run import check
from tests.sdk.trainee import Recipe
from tradewind.sdk.diagnostics import FAULTS

STEPS = 16
LONG = 120
"""Steps of jobs that workers join. `LiveJob.crawl_from(20)` makes the steps from the 20th last 20 s in all."""


def recipe_of(folder: Path, steps: int = STEPS) -> Recipe:
    return Recipe(str(folder), steps=steps, compute_s=0.01, checkpoints=True, checkpoint_every=2)


def dies(*faults: str) -> dict[str, str]:
    return {FAULTS: ",".join(f"{fault}:SIGKILL" for fault in faults)}


def pauses(fault: str) -> dict[str, str]:
    return {FAULTS: f"{fault}:SIGSTOP"}


async def everything_ended(job: LiveJob, *victims: TrainerProcess) -> list[TrainerProcess]:
    """Waits until the job has succeeded, checks the exits, and returns the trainers that finished."""
    await job.wait_finished()
    assert job.record.phase is Phase.SUCCEEDED, job.record.why
    assert [victim.exitcode for victim in victims] == [-signal.SIGKILL] * len(victims), job.worlds
    finishers = [trainer for trainer in job.trainers if trainer not in victims and not trainer.is_stopped]
    assert [trainer.exitcode for trainer in finishers] == [0] * len(finishers), job.worlds
    return finishers


@pytest.mark.parametrize(
    ("rank", "step", "phase"),
    [
        (1, 5, "compute"),
        (1, 5, "before_all_reduce"),
        (1, 5, "in_all_reduce"),
        (1, 5, "after_all_reduce"),
        (1, 5, "applied"),
        (0, 5, "applied"),
        (1, STEPS, "before_all_reduce"),
        (0, STEPS, "in_all_reduce"),
        (1, STEPS, "after_all_reduce"),
    ],
)
async def test_a_rank_dies_in_any_phase_of_a_step_and_of_the_end(
    tmp_path: Path, rank: int, step: int, phase: str
) -> None:
    recipe = recipe_of(tmp_path)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3, [dies(f"{rank}:{step}:{phase}") if place == rank else {} for place in range(3)])
        await everything_ended(job, job.trainers[rank])
    check(tmp_path, recipe, finishers=2)


@pytest.mark.parametrize(
    ("rank", "phase"), [(1, "repair"), (0, "repair"), (1, "building"), (1, "in_all_reduce"), (0, "after_all_reduce")]
)
async def test_another_dies_while_the_first_death_is_being_repaired(tmp_path: Path, rank: int, phase: str) -> None:
    recipe = recipe_of(tmp_path)
    async with LiveJob(tmp_path, recipe) as job:
        job.hold_before(5)
        await job.start(4, [dies(f"{rank}:5:{phase}") if place == rank else {} for place in range(4)])
        await job.wait_held()
        job.trainers[3].kill()
        await job.wait_until(lambda: len(job.worlds) > 1, "a repair begins")
        job.hold_before(None)
        await everything_ended(job, job.trainers[rank], job.trainers[3])
    check(tmp_path, recipe, finishers=2)


@pytest.mark.parametrize("victim", [None, 0, 1, 2], ids=["nobody", "the source", "the laggard", "another one"])
async def test_a_rank_dies_while_a_laggard_gets_the_step_that_it_missed(tmp_path: Path, victim: int | None) -> None:
    recipe = replace(recipe_of(tmp_path), misses_all_reduce_of=5, scaled=True)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3, [dies(f"{rank}:5:catching_up") if rank == victim else {} for rank in range(3)])
        await everything_ended(job, *(job.trainers[rank] for rank in range(3) if rank == victim))
        assert job.worlds[1] == ("repair", 3)
    reported = check(tmp_path, recipe, finishers=3 if victim is None else 2)
    assert len({each["loss"] for each in reported}) == 1


@pytest.mark.parametrize(
    ("who", "fault"),
    [
        ("leaving", "0:5:before_all_reduce"),
        ("leaving", "0:5:in_all_reduce"),
        ("leaving", "0:5:after_all_reduce"),
        ("leaving", "0:5:applied"),
        ("leaving", "0:6:switched"),
        # Rank 1 becomes rank 0 in the next world. `building` has its new rank, other phases have it after the switch.
        ("stayer", "0:5:building"),
        ("stayer", "1:5:before_all_reduce"),
        ("stayer", "1:5:in_all_reduce"),
        ("stayer", "1:5:after_all_reduce"),
        ("stayer", "1:5:applied"),
        ("stayer", "0:6:switched"),
    ],
)
async def test_a_rank_dies_around_a_switch_that_another_rank_leaves(tmp_path: Path, who: str, fault: str) -> None:
    """Rank 0 leaves in the switch after step 5.

    If it is to die, the other ranks stop after the all-reduce of step 5 until it is dead. Otherwise the job could
    release it before its death.
    """
    recipe = recipe_of(tmp_path)
    stays = pauses("*:5:after_all_reduce")
    envs = [dies(fault), stays, stays] if who == "leaving" else [{}, dies(fault), {}]
    async with LiveJob(tmp_path, recipe) as job, asyncio.TaskGroup() as tasks:
        job.hold_before(5)
        await job.start(3, envs)
        leaving_trainer, stayer, other = job.members
        await job.wait_held()
        job.notice(leaving_trainer)
        await job.wait_all_prepared()
        job.hold_before(None)
        if who == "leaving":
            await job.wait_until(lambda: not leaving_trainer.alive, "its death")
        waking = tasks.create_task(job.wake_all(after_s=0.0), name="waking")
        finishers = await everything_ended(job, leaving_trainer if who == "leaving" else stayer)
        waking.cancel()
    check(tmp_path, recipe, finishers=len(finishers))
    assert finishers == ([stayer] if who == "leaving" else []) + [other]


@pytest.mark.parametrize(
    ("who", "fault"),
    [
        ("joining", "3:0:building"),
        ("joining", "3:0:join_entered"),
        ("joining", "3:*:join_loaded"),
        ("joining", "3:*:join_level"),
        ("survivor", "1:5:building"),
        ("survivor", "1:6:switched"),
        ("survivor", "1:6:before_all_reduce"),
        ("survivor", "1:6:in_all_reduce"),
        ("survivor", "1:6:after_all_reduce"),
        ("survivor", "1:6:applied"),
    ],
)
async def test_after_a_loss_during_a_join_a_fourth_worker_still_joins(tmp_path: Path, who: str, fault: str) -> None:
    """Without the loss, all ranks would switch to the world with the joining worker after step 5.

    If the joining worker dies, another one joins.
    """
    recipe = recipe_of(tmp_path, LONG)
    async with LiveJob(tmp_path, recipe) as job:
        job.hold_before(5)
        await job.start(3, [{}, dies(fault) if who == "survivor" else {}, {}])
        [joining_trainer] = await job.enlarge(dies(fault) if who == "joining" else {})
        await job.wait_held()
        job.crawl_from(20)
        await job.wait_all_prepared()
        job.hold_before(None)
        if who == "joining":
            await job.wait_until(lambda: not joining_trainer.alive, "its death")
        [joined] = await job.enlarge({}) if who == "joining" else [joining_trainer]
        await job.wait_active(joined)
        job.crawl_from(None)
        finishers = await everything_ended(job, joining_trainer if who == "joining" else job.trainers[1])
    check(tmp_path, recipe, finishers=len(finishers))
    assert [trainer.machine for trainer in finishers] == ([0, 1, 2, 4] if who == "joining" else [0, 2, 3])


@pytest.mark.parametrize(
    ("who", "fault"),
    [
        ("joining", "2:0:repair"),
        ("joining", "2:*:join_loaded"),
        ("joining", "2:*:join_level"),
        ("survivor", "1:5:repair"),
        ("survivor", "1:6:in_all_reduce"),
    ],
)
async def test_a_loss_in_a_repair_with_a_joining_worker_is_repaired(tmp_path: Path, who: str, fault: str) -> None:
    """Two workers are too few, so each lost one is replaced before the next step."""
    recipe = recipe_of(tmp_path, LONG)
    async with LiveJob(tmp_path, recipe, least=3) as job:
        job.crawl_from(20)
        await job.start(3, [{}, dies("1:5:before_all_reduce"), dies(fault) if who == "survivor" else {}])
        job.provide(dies(fault) if who == "joining" else {}, {})
        await job.wait_until(lambda: len(job.machines) == 5 and job.is_whole(3), "both are replaced")
        job.crawl_from(None)
        _, first, second, joining_trainer, _ = job.trainers
        finishers = await everything_ended(job, first, joining_trainer if who == "joining" else second)
    check(tmp_path, recipe, finishers=3)
    assert [trainer.machine for trainer in finishers] == ([0, 2, 4] if who == "joining" else [0, 3, 4])


async def joined_by_one(
    job: LiveJob, joining_env: dict[str, str] | None = None, spoil: Callable[[], None] = lambda: None
) -> None:
    """Runs a job of three workers that a fourth joins, until all finish."""
    job.crawl_from(20)
    await job.start(3)
    spoil()
    await job.wait_active(*await job.enlarge(joining_env or {}))
    job.crawl_from(None)
    await job.wait_finished()


async def test_a_shard_that_is_lost_silently_only_delays_a_join(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=LONG, compute_s=0.01, loses_a_shard=True)
    async with LiveJob(tmp_path, recipe) as job:
        await joined_by_one(job)
        assert ("repair", 3) in job.worlds
    check(tmp_path, recipe, finishers=4)


async def test_if_a_survivor_cannot_build_the_next_world_the_joining_worker_joins_in_another(
    tmp_path: Path,
) -> None:
    recipe = Recipe(str(tmp_path), steps=LONG, compute_s=0.01)
    async with LiveJob(tmp_path, recipe) as job:
        await joined_by_one(job, spoil=lambda: job.machines[1].misplace())
        assert ("repair", 3) in job.worlds
    check(tmp_path, recipe, finishers=4)


async def test_a_joining_worker_that_stops_for_a_while_after_each_load_of_the_state_is_waited_for(
    tmp_path: Path,
) -> None:
    recipe = Recipe(str(tmp_path), steps=LONG, compute_s=0.01)
    slow = {FAULTS: ",".join(f"*:{step}:join_loaded:SIGSTOP" for step in range(LONG + 1))}
    async with LiveJob(tmp_path, recipe) as job, asyncio.TaskGroup() as tasks:
        waking = tasks.create_task(job.wake_all(after_s=1.0), name="waking")
        await joined_by_one(job, slow)
        waking.cancel()
        assert job.worlds == [("start", 3), ("planned", 4)]
        assert {trainer.machine for trainer in job.woken} == {3}
    check(tmp_path, recipe, finishers=4)
