"""The exchange of a step in one bucket or in many: the same steps, whatever happens to the world meanwhile."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.sdk.live_job import LiveJob
from tests.sdk.test_run import check, distance, undisturbed, weights
from tests.sdk.trainee import Recipe
from tradewind.sdk import buckets as module
from tradewind.sdk import control_words
from tradewind.sdk.buckets import Buckets

STEP = 6
FEW_BYTES = 64


def three_parameters() -> list[Tensor]:
    return [nn.Parameter(torch.zeros(size)) for size in (2, 3, 20)]


def collected(buckets: Buckets, step: int = STEP) -> Buckets:
    for number in range(buckets.count):
        buckets.collect(step, number)
    return buckets


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_BYTES", FEW_BYTES)


def test_all_gradients_are_in_one_bucket_by_default() -> None:
    buckets = Buckets(three_parameters())
    assert buckets.count == 1
    assert buckets.bucket(STEP, 0, world_size=4).numel() == 25 + 3 + control_words.size(4)


@pytest.mark.usefixtures("small_buckets")
def test_the_last_parameters_are_in_the_first_bucket_and_the_control_words_in_the_last() -> None:
    parameters = three_parameters()
    for value, parameter in enumerate(parameters, 1):
        parameter.grad = torch.full_like(parameter, float(value))
    buckets = collected(Buckets(parameters))
    buckets.words(STEP).fill_(7.0)

    first, last = (buckets.bucket(STEP, number, world_size=2).tolist() for number in range(2))

    assert buckets.count == 2 and first == [3.0] * 20
    assert last == [2.0] * 3 + [1.0] * 2 + [1.0] * 3 + [7.0] * control_words.size(2)


@pytest.mark.usefixtures("small_buckets")
def test_a_parameter_that_no_rank_used_has_no_gradient_in_whichever_bucket_it_is() -> None:
    parameters = three_parameters()
    parameters[0].grad = torch.ones(2)
    ranks = [collected(Buckets(parameters))]
    parameters[0].grad, parameters[1].grad = None, torch.ones(3)
    ranks.append(collected(Buckets(parameters)))
    ranks[1].whole(STEP).add_(ranks[0].whole(STEP))

    ranks[1].use(STEP)

    assert [parameter.grad is not None for parameter in parameters] == [True, True, False]


@pytest.mark.usefixtures("small_buckets")
def test_a_gradient_that_is_not_finite_shows_in_the_total_of_its_bucket() -> None:
    parameters = three_parameters()
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    parameters[1].grad = torch.full((3,), torch.inf)
    buckets = collected(Buckets(parameters))
    assert [bool(buckets.total(STEP, number).isfinite()) for number in range(2)] == [True, False]


def test_a_step_stays_whole_while_the_next_one_is_collected() -> None:
    parameters = three_parameters()
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    buckets = collected(Buckets(parameters))
    before = buckets.copy_of(STEP, world_size=2)
    buckets.clear(STEP + 1)
    assert torch.equal(buckets.copy_of(STEP, world_size=2), before) and before.any()


async def test_a_step_in_many_buckets_survives_a_loss_a_leaving_and_a_joining_rank(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "changing")]
    for folder in folders:
        folder.mkdir()
    alone = await undisturbed(folders[0], 1, 40)
    recipe = Recipe(str(folders[1]), steps=40, bucket_bytes=FEW_BYTES)
    async with LiveJob(folders[1], recipe) as job:
        job.hold_before(5)
        await job.start(3)
        joining = await job.enlarge({})
        job.crawl_from(6)
        job.hold_before(None)
        await job.wait_active(*joining)
        await job.notice_and_wait(job.members[1])
        job.members[0].kill()
        job.crawl_from(None)
        await job.wait_finished()
    check(folders[1], recipe, finishers=2)
    assert distance(weights(folders[1])[0], alone) < 1e-6


async def test_a_rank_that_missed_a_step_in_many_buckets_is_given_all_of_them(tmp_path: Path) -> None:
    recipe = Recipe(str(tmp_path), steps=12, bucket_bytes=FEW_BYTES, misses_all_reduce_of=4)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3)
        await job.wait_finished()
    check(tmp_path, recipe, finishers=3)
