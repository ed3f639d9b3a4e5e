"""Runs of real trainers through real changes: the result is that of an undisturbed run."""

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from messages.worlds import Release
from tests.conftest import eventually_blocking
from tests.sdk.live_job import LiveJob, results
from tests.sdk.trainee import Recipe, model_of
from tradewind.sdk.diagnostics import FAULTS


async def undisturbed(folder: Path, world: int, steps: int, *, scaled: bool = False) -> dict[str, torch.Tensor]:
    async with LiveJob(folder, Recipe(str(folder), steps=steps, scaled=scaled)) as job:
        await job.start(world)
        await job.wait_finished()
    return weights(folder)[0]


def weights(folder: Path) -> list[dict[str, torch.Tensor]]:
    return [torch.load(path)["model"] for path in sorted(folder.glob("result-*.pt"))]


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The relative distance of two models in the norm of all weights."""
    flat_one, flat_other = (torch.cat([value.flatten() for value in each.values()]) for each in (one, other))
    return float((flat_one - flat_other).norm() / flat_other.norm())


def check(folder: Path, recipe: Recipe, *, finishers: int) -> list[dict[str, Any]]:
    """Checks the results of a run: certificates hold, and all states are the same."""
    reported = results(folder)
    assert len(reported) == finishers
    for each in reported:
        certificate = each["certificate"]
        assert certificate["holds"], each["message"]
        assert (certificate["steps"], certificate["samples"]) == (recipe.steps, recipe.steps * recipe.batch)
    states = [torch.load(path) for path in sorted(folder.glob("result-*.pt"))]
    for state in states[1:]:
        for name, value in states[0]["model"].items():
            assert torch.equal(value, state["model"][name]), f"{name} differs between survivors"
        for index, slots in states[0]["optimizer"]["state"].items():
            for key, value in slots.items():
                assert torch.equal(value, state["optimizer"]["state"][index][key]), f"{index}.{key} differs"
    return reported


async def test_worlds_of_any_size_give_the_same_weights(tmp_path: Path) -> None:
    steps = 60
    folders = [tmp_path / name for name in ("one", "four", "changing")]
    for folder in folders:
        folder.mkdir()
    alone = await undisturbed(folders[0], 1, steps)
    four = await undisturbed(folders[1], 4, steps)
    recipe = Recipe(str(folder), steps=steps)
    async with LiveJob(folder, recipe) as job:
        job.hold_before(5)
        await job.start(4)
        job.crawl_from(6)
        job.hold_before(None)
        await job.notice_and_wait(job.members[1])
        await job.wait_active(*await job.enlarge({}, {}))
        await job.notice_and_wait(*job.members[:3])
        await job.wait_active(*await job.enlarge({}, {}))
        job.crawl_from(None)
        await job.wait_finished()
        sizes = [size for _, size in job.worlds]
    assert (sizes[0], min(sizes), max(sizes), sizes[-1]) == (4, 2, 5, 4)
    check(folder, recipe, finishers=4)
    final = weights(folder)[0]
    assert distance(four, alone) < 1e-6
    assert distance(final, alone) < 1e-6
    assert distance(final, model_of(recipe.width).state_dict()) > 1e-3


async def test_a_scaled_loss_and_shares_that_come_in_parts_survive_leaving_workers_and_joining_workers(
    tmp_path: Path,
) -> None:
    """The script's own update draws random numbers, and one step overflows."""
    folders = [tmp_path / name for name in ("one", "changing")]
    for folder in folders:
        folder.mkdir()
    alone = await undisturbed(folders[0], 1, 40, scaled=True)
    recipe = Recipe(str(folder), steps=40, scaled=True, max_share=5)
    async with LiveJob(folder, recipe) as job:
        job.hold_before(5)
        await job.start(3)
        job.crawl_from(6)
        job.hold_before(None)
        await job.wait_active(*await job.enlarge({}))
        await job.notice_and_wait(*job.members[:2])
        await job.wait_active(*await job.enlarge({}))
        job.crawl_from(None)
        await job.wait_finished()
        measured = job.members[0].measured[-1]
    reported = check(folder, recipe, finishers=3)
    assert max(samples for each in reported for *_, samples in each["seen"]) == 5
    assert measured["steps"] > 0
    assert distance(weights(folder)[0], alone) < 1e-6


@pytest.mark.parametrize("victims", [(2,), (0,), (0, 2)], ids=["the last", "rank 0", "two at once"])
async def test_a_killed_rank_loses_no_sample(tmp_path: Path, victims: tuple[int, ...]) -> None:
    recipe = Recipe(str(tmp_path), steps=30, compute_s=0.05)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3)
        await job.wait_for_step(5)
        for victim in victims:
            job.members[victim].kill()
        await job.wait_finished()
    reported = check(tmp_path, recipe, finishers=3 - len(victims))
    held = Counter(step for each in reported for step, *_ in each["seen"])
    assert set(held) == set(range(recipe.steps))


@pytest.mark.parametrize("checkpoints", [False, True], ids=["without checkpoints", "with checkpoints"])
async def test_a_worker_leaves_and_no_other_rank_stops(tmp_path: Path, checkpoints: bool) -> None:
    recipe = Recipe(str(tmp_path), steps=30, compute_s=0.05, checkpoints=checkpoints, checkpoint_every=2)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3)
        leaving_worker = job.members[0]
        job.crawl_from(5)
        await job.notice_and_wait(leaving_worker)
        await job.wait_until(lambda: not leaving_worker.alive, "its machine is released")
        job.crawl_from(None)
        await job.wait_finished()
        assert job.worlds == [("start", 3), ("planned", 2)]
    check(tmp_path, recipe, finishers=2)


async def test_a_rank_that_left_joins_again_if_its_release_is_lost(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=60, compute_s=0.05)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3)
        leaving_worker = job.members[2]
        job.crawl_from(10)
        job.lost.add(Release)
        job.scale(2)
        await job.wait_until(lambda: len(job.members) == 2 and not leaving_worker.is_active(), "it has handed over")
        job.scale(3)
        await job.wait_active(leaving_worker)
        job.lost.clear()
        job.crawl_from(None)
        await job.wait_finished()
    check(tmp_path, recipe, finishers=3)


async def test_a_silent_rank_is_noticed_and_removed(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=40, compute_s=0.05)
    async with LiveJob(tmp_path, recipe, park_s=1.0) as job:
        await job.start(3)
        await job.wait_for_step(8)
        job.members[1].freeze()
        await job.wait_finished()
    check(tmp_path, recipe, finishers=2)


async def test_a_world_of_one_takes_a_joining_worker_and_is_left_to_it(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=60, compute_s=0.05)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(1)
        first = job.members[0]
        job.crawl_from(1)
        await job.wait_active(*await job.enlarge({}))
        await job.notice_and_wait(first)
        job.crawl_from(None)
        await job.wait_finished()
    reported = check(tmp_path, recipe, finishers=1)
    assert reported[0]["seen"][-1][0] == recipe.steps - 1


@pytest.mark.parametrize("joining_workers", [1, 2])
async def test_a_repair_that_takes_joining_workers_in_gives_them_the_state(
    tmp_path: Path, joining_workers: int
) -> None:
    recipe = Recipe(str(tmp_path), steps=40)
    # The other one waits in the all-reduce, and enters the next world at once.
    dies = {FAULTS: "1:5:before_all_reduce:SIGKILL"}
    async with LiveJob(tmp_path, recipe, least=2) as job:
        job.hold_before(5)
        await job.start(2, [{}, dies])
        joining_ranks = await job.enlarge(*[{}] * joining_workers)
        job.crawl_from(6)
        job.hold_before(None)
        await job.wait_active(*joining_ranks)
        job.crawl_from(None)
        await job.wait_finished()
        assert job.worlds == [("start", 2), ("repair", 1 + joining_workers)]
    check(tmp_path, recipe, finishers=1 + joining_workers)


async def test_when_everything_is_lost_the_newest_checkpoint_continues(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=30, compute_s=0.02, checkpoints=True, checkpoint_every=5)
    async with LiveJob(tmp_path, recipe, least=2) as job:
        job.hold_before(13)
        await job.start(2)
        await job.wait_held()
        await asyncio.to_thread(wait_for_file, tmp_path / "checkpoints" / "step-000000000010.pt")
        for trainer in job.members:
            trainer.kill()
        job.hold_before(None)
        job.provide({}, {})
        await job.wait_finished()
        assert job.worlds == [("start", 2)] * 2
    reported = check(tmp_path, recipe, finishers=2)
    certificate = reported[0]["certificate"]
    assert certificate["resumed_at"] == [10]
    assert certificate["recomputed"] >= 1, reported[0]["message"]


async def test_a_run_that_is_stopped_resumes_later_where_it_was(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=30, compute_s=0.02, checkpoints=True, checkpoint_every=1000)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3)
        await job.wait_for_step(12)
        job.stop()
        await job.wait_finished()
        assert {trainer.exitcode for trainer in job.trainers} == {-signal.SIGTERM}
    saved = list((tmp_path / "checkpoints").glob("step-*.pt"))
    assert len(saved) == 1
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(2)
        await job.wait_finished()
    certificate = check(tmp_path, recipe, finishers=2)[0]["certificate"]
    assert certificate["resumed_at"][0] >= 12
    assert certificate["recomputed"] == 0


@pytest.mark.parametrize("mischief", ["drop", "repeat", "swap"])
async def test_a_share_that_is_not_what_it_should_be_turns_the_certificate_red(tmp_path: Path, mischief: str) -> None:
    recipe = Recipe(str(tmp_path), steps=6, mischief=mischief)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(2)
        await job.wait_finished()
    reported = results(tmp_path)
    assert len(reported) == 2
    for each in reported:
        certificate = each["certificate"]
        assert not certificate["holds"]
        assert certificate["first_bad"] == 3
        broken = {"drop": "lost", "repeat": "repeated", "swap": "wrong"}[mischief]
        assert certificate[broken] > 0


def wait_for_file(path: Path) -> None:
    eventually_blocking(path.exists, path.name)
