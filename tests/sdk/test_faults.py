"""Losses during changes of the world, in every phase: no sample is lost or used twice.

Each table has the rank that dies, and the step and phase in which it dies. Checkpoints are on, so that the rank that
writes them dies too.
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
"""Number of steps. Steps from the 20th on are slow until all have joined, so they take at least 20 s."""


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
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3, [dies(f"{rank}:{step}:{phase}") if place == rank else {} for place in range(3)])
        finishers = await everything_ended(job, job.trainers[rank])
    check(tmp_path, recipe, finishers=2)
    assert len(finishers) == 2


@pytest.mark.parametrize(
    ("rank", "phase"), [(1, "repair"), (0, "repair"), (1, "building"), (1, "in_sum"), (0, "after_sum")]
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
async def test_somebody_dies_while_one_is_given_the_sum_that_it_missed(tmp_path: Path, victim: int | None) -> None:
    recipe = replace(recipe_of(tmp_path), misses_sum_of=5, scaled=True)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3, [dies(f"{rank}:5:catching_up") if rank == victim else {} for rank in range(3)])
        await everything_ended(job, *(job.trainers[rank] for rank in range(3) if rank == victim))
        assert job.worlds[1] == ("repair", 3)
    reported = check(tmp_path, recipe, finishers=3 if victim is None else 2)
    assert len({each["loss"] for each in reported}) == 1


@pytest.mark.parametrize(
    ("who", "fault"),
    [
        ("leaving", "0:5:before_sum"),
        ("leaving", "0:5:in_sum"),
        ("leaving", "0:5:after_sum"),
        ("leaving", "0:5:applied"),
        ("leaving", "0:6:switched"),
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
    """All ranks switch after step 5.

    The ranks that stay pause after its all-reduce until a leaving worker has died: the job would release a late one.
    """
    recipe = recipe_of(tmp_path)
    stays = pauses("*:5:after_sum")
    envs = [dies(fault), stays, stays] if who == "leaving" else [{}, dies(fault), {}]
    async with LiveJob(tmp_path, recipe) as job, asyncio.TaskGroup() as tasks:
        job.hold_before(5)
        await job.start(3, envs)
        leaving_worker, stayer, other = job.members
        await job.wait_held()
        job.notice(leaving_worker)
        await job.wait_all_prepared()
        job.hold_before(None)
        if who == "leaving":
            await job.wait_until(lambda: not leaving_worker.alive, "its death")
        waking = tasks.create_task(job.wake_all(after_s=0.0), name="waking")
        finishers = await everything_ended(job, leaving_worker if who == "leaving" else stayer)
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
        ("survivor", "1:6:before_sum"),
        ("survivor", "1:6:in_sum"),
        ("survivor", "1:6:after_sum"),
        ("survivor", "1:6:applied"),
    ],
)
async def test_after_a_loss_during_a_join_the_joining_worker_joins_again(tmp_path: Path, who: str, fault: str) -> None:
    """All ranks switch to the world of the joining worker after step 5."""
    recipe = recipe_of(tmp_path, LONG)
    async with LiveJob(tmp_path, recipe) as job:
        job.hold_before(5)
        await job.start(3, [{}, dies(fault) if who == "survivor" else {}, {}])
        [joining_rank] = await job.enlarge(dies(fault) if who == "joining" else {})
        await job.wait_held()
        job.crawl_from(20)
        await job.wait_all_prepared()
        job.hold_before(None)
        if who == "joining":
            await job.wait_until(lambda: not joining_rank.alive, "its death")
        [joined] = await job.enlarge({}) if who == "joining" else [joining_rank]
        await job.wait_active(joined)
        job.crawl_from(None)
        finishers = await everything_ended(job, joining_rank if who == "joining" else job.trainers[1])
    check(tmp_path, recipe, finishers=len(finishers))
    assert [trainer.machine for trainer in finishers] == ([0, 1, 2, 4] if who == "joining" else [0, 2, 3])


@pytest.mark.parametrize(
    ("who", "fault"),
    [
        ("joining", "2:0:repair"),
        ("joining", "2:*:join_loaded"),
        ("joining", "2:*:join_level"),
        ("survivor", "1:5:repair"),
        ("survivor", "1:6:in_sum"),
    ],
)
async def test_a_loss_in_a_repair_with_a_joining_worker_is_repaired(tmp_path: Path, who: str, fault: str) -> None:
    """Two workers are too few, so each lost one is replaced before the next step."""
    recipe = recipe_of(tmp_path, LONG)
    async with LiveJob(tmp_path, recipe, least=3) as job:
        job.crawl_from(20)
        await job.start(3, [{}, dies("1:5:before_sum"), dies(fault) if who == "survivor" else {}])
        job.provide(dies(fault) if who == "joining" else {}, {})
        await job.wait_until(lambda: len(job.machines) == 5 and job.is_whole(3), "both are replaced")
        job.crawl_from(None)
        _, first, second, joining_worker, _ = job.trainers
        finishers = await everything_ended(job, first, joining_worker if who == "joining" else second)
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


async def test_a_joining_worker_that_is_stopped_for_a_while_each_time_is_waited_for(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=LONG, compute_s=0.01)
    slow = {FAULTS: ",".join(f"*:{step}:join_loaded:SIGSTOP" for step in range(LONG + 1))}
    async with LiveJob(tmp_path, recipe) as job, asyncio.TaskGroup() as tasks:
        waking = tasks.create_task(job.wake_all(after_s=1.0), name="waking")
        await joined_by_one(job, slow)
        waking.cancel()
    check(tmp_path, recipe, finishers=4)
