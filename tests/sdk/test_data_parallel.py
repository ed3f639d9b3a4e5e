"""A model that stays wrapped in DistributedDataParallel: the wrapper's own group gets no collective."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

from tests.sdk import trainee
from tests.sdk.live_job import LiveJob
from tests.sdk.test_run import check, distance, weights
from tests.sdk.trainee import Recipe
from tradewind.sdk.checks import quiet

OPTIONS: list[dict[str, Any]] = [
    {},
    {"find_unused_parameters": True},
    {"static_graph": True},
    {"gradient_as_bucket_view": True, "find_unused_parameters": True},
]
Wrap = Callable[[nn.Module], nn.Module]


class Part(nn.Module):
    """A model with a buffer and an unused parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(4, 1), nn.Linear(2, 2)
        self.register_buffer("constant", torch.ones(1))

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.used(inputs)
        return found


@pytest.fixture
def own_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def collectives_of(model: nn.Module, *, times: int) -> int:
    group: Any = dist.group.WORLD
    before: int = group._get_sequence_number_for_group()
    for _ in range(times):
        model(torch.ones(2, 4)).mean().backward()
        model.zero_grad()
    after: int = group._get_sequence_number_for_group()
    return after - before


@pytest.mark.usefixtures("own_group")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("whole", [lambda wrapped: wrapped, nn.Sequential], ids=["the model", "a part of it"])
def test_neither_forward_nor_backward_does_a_collective(options: dict[str, Any], whole: Wrap) -> None:
    model = whole(DistributedDataParallel(Part(), **options))
    quiet(model)
    assert collectives_of(model, times=3) == 0


@pytest.mark.usefixtures("own_group")
def test_a_wrapper_that_trained_before_the_run_leaves_nothing_to_do_in_it() -> None:
    model = DistributedDataParallel(nn.Linear(4, 1))
    assert collectives_of(model, times=1) > 0
    quiet(model)
    assert collectives_of(model, times=3) == 0


@pytest.mark.usefixtures("own_group")
def test_a_wrapper_that_cannot_be_quiet_is_refused() -> None:
    part = Part()
    delayed = [("unused.weight", part.unused.weight)]
    model = DistributedDataParallel(
        part, delay_all_reduce_named_params=delayed, param_to_hook_all_reduce=part.used.weight
    )
    with pytest.raises(ValueError, match="delay_all_reduce_named_params"):
        quiet(model)


def train_wrapped(recipe: Recipe, env: dict[str, str]) -> None:
    """The script of the other tests, written for torchrun: with DistributedDataParallel."""
    os.environ.update(env)
    dist.init_process_group("gloo")
    bare = trainee.model_of
    vars(trainee).update(model_of=lambda width: DistributedDataParallel(bare(width), find_unused_parameters=True))
    trainee.train(recipe, env)


async def test_a_wrapped_model_lives_through_an_empty_share_a_loss_and_a_join(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("bare", "wrapped")]
    for folder in folders:
        folder.mkdir()
    bare, wrapped = (Recipe(str(folder), steps=60, batch=2) for folder in folders)
    async with LiveJob(folders[0], bare) as job:
        await job.start(1)
        await job.wait_finished()
    async with LiveJob(folders[1], wrapped, train_wrapped) as job:
        job.crawl_from(6)
        await job.start(3)
        await job.wait_for_step(8)
        job.members[0].kill()
        await job.wait_until(lambda: ("repair", 2) in job.worlds, "the loss is repaired")
        job.provide({})
        await job.wait_until(lambda: job.is_whole(3), "another machine replaces it")
        job.crawl_from(None)
        await job.wait_finished()
    check(folders[1], wrapped, finishers=3)
    unwrapped = {name.removeprefix("module."): value for name, value in weights(folders[1])[0].items()}
    assert distance(unwrapped, weights(folders[0])[0]) < 1e-6
