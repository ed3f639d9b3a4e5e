"""A change during a change: every phase, with a death in it. Whatever happens, no sample is lost or taken twice.

Each table says who dies, in which step and in which phase of it. Checkpoints are on: whoever writes them dies too.
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
"""From the 20th on they crawl until everybody has joined: 20 s at least."""


def recipe_of(folder: Path, steps: int = STEPS) -> Recipe:
    return Recipe(str(folder), steps=steps, compute_s=0.01, checkpoints=True, checkpoint_every=2)


def dies(*faults: str) -> dict[str, str]:
    return {FAULTS: ",".join(f"{fault}:SIGKILL" for fault in faults)}


def pauses(fault: str) -> dict[str, str]:
    return {FAULTS: f"{fault}:SIGSTOP"}


async def everything_ended(job: LiveJob, *victims: TrainerProcess) -> list[TrainerProcess]:
    """The job succeeds, and the victims were killed. Returns the other trainers, but those that were released."""
    await job.finished()
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
        await job.held()
        job.trainers[3].kill()
        await job.until(lambda: len(job.worlds) > 1, "a repair begins")
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
    """Which happens after step 5, since everybody is ready for it by then.

    Those that stay pause after its all-reduce until a leaver has died: the job would release one that is late.
    """
    recipe = recipe_of(tmp_path)
    stays = pauses("*:5:after_sum")
    envs = [dies(fault), stays, stays] if who == "leaver" else [{}, dies(fault), {}]
    async with LiveJob(tmp_path, recipe) as job, asyncio.TaskGroup() as tasks:
        job.hold_before(5)
        await job.start(3, envs)
        leaver, stayer, other = job.members
        await job.held()
        job.notice(leaver)
        await job.all_prepared()
        job.hold_before(None)
        if who == "leaver":
            await job.until(lambda: not leaver.alive, "its death")
        waking = tasks.create_task(job.wake_all(after_s=0.0), name="waking")
        finishers = await everything_ended(job, leaver if who == "leaver" else stayer)
        waking.cancel()
    check(tmp_path, recipe, finishers=len(finishers))
    assert finishers == ([stayer] if who == "leaver" else []) + [other]


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
    async with LiveJob(tmp_path, recipe) as job:
        job.hold_before(5)
        await job.start(3, [{}, dies(fault) if who == "survivor" else {}, {}])
        [joiner] = await job.enlarge(dies(fault) if who == "joiner" else {})
        await job.held()
        job.crawl_from(20)
        await job.all_prepared()
        job.hold_before(None)
        if who == "joiner":
            await job.until(lambda: not joiner.alive, "its death")
        [taken] = await job.enlarge({}) if who == "joiner" else [joiner]
        await job.active(taken)
        job.crawl_from(None)
        finishers = await everything_ended(job, joiner if who == "joiner" else job.trainers[1])
    check(tmp_path, recipe, finishers=len(finishers))
    assert [trainer.machine for trainer in finishers] == ([0, 1, 2, 4] if who == "joiner" else [0, 2, 3])


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
    """Two are too few to train on, so each that is lost is replaced before the next step."""
    recipe = recipe_of(tmp_path, LONG)
    async with LiveJob(tmp_path, recipe, least=3) as job:
        job.crawl_from(20)
        await job.start(3, [{}, dies("1:5:before_sum"), dies(fault) if who == "survivor" else {}])
        job.provide(dies(fault) if who == "newcomer" else {}, {})
        await job.until(lambda: len(job.machines) == 5 and job.is_whole(3), "both are replaced")
        job.crawl_from(None)
        _, first, second, newcomer, _ = job.trainers
        finishers = await everything_ended(job, first, newcomer if who == "newcomer" else second)
    check(tmp_path, recipe, finishers=3)
    assert [trainer.machine for trainer in finishers] == ([0, 2, 4] if who == "newcomer" else [0, 3, 4])


async def joined_by_one(
    job: LiveJob, joiner_env: dict[str, str] | None = None, spoil: Callable[[], None] = lambda: None
) -> None:
    """Three train, a fourth joins them, and all finish."""
    job.crawl_from(20)
    await job.start(3)
    spoil()
    await job.active(*await job.enlarge(joiner_env or {}))
    job.crawl_from(None)
    await job.finished()


async def test_a_shard_that_is_lost_without_a_word_only_delays_a_join(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=LONG, compute_s=0.01, loses_a_shard=True)
    async with LiveJob(tmp_path, recipe) as job:
        await joined_by_one(job)
        assert ("repair", 3) in job.worlds
    check(tmp_path, recipe, finishers=4)


async def test_a_survivor_that_cannot_build_the_next_world_says_so_and_the_joiner_is_taken_up_again(
    tmp_path: Path,
) -> None:
    recipe = Recipe(str(tmp_path), steps=LONG, compute_s=0.01)
    async with LiveJob(tmp_path, recipe) as job:
        await joined_by_one(job, spoil=lambda: job.machines[1].misplace())
        assert ("repair", 3) in job.worlds
    check(tmp_path, recipe, finishers=4)


async def test_a_joiner_that_is_stopped_for_a_while_each_time_is_waited_for(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=LONG, compute_s=0.01)
    slow = {FAULTS: ",".join(f"*:{step}:join_loaded:SIGSTOP" for step in range(LONG + 1))}
    async with LiveJob(tmp_path, recipe) as job, asyncio.TaskGroup() as tasks:
        waking = tasks.create_task(job.wake_all(after_s=1.0), name="waking")
        await joined_by_one(job, slow)
        waking.cancel()
    check(tmp_path, recipe, finishers=4)
