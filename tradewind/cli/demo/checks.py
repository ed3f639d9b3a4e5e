"""The claims of the demonstration, each a function from the facts to the sentences in which they contradict it."""

from collections.abc import Callable, Iterator
from itertools import pairwise

from messages.ids import WorkerId
from tradewind.cli.demo.facts import Facts, Trained, losses

Check = Callable[[Facts, list[Trained]], Iterator[str]]


def job_succeeded(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    if facts.phase != "succeeded":
        yield f"the job ended as {facts.phase!r} ({facts.why}), not as succeeded"


def all_steps_completed(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    completed = frozenset[int]().union(*(world.completed for world in trained))
    promised = frozenset(range(facts.promise.steps))
    if missing := promised - completed:
        yield f"{len(missing)} of {len(promised)} steps were never completed, the first is {min(missing)}"
    if beyond := completed - promised:
        yield f"step {min(beyond)} was reported, but the last one is {len(promised) - 1}"


def ranks_held_once(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    for world in trained:
        for rank, workers in sorted(world.holders.items()):
            if len(workers) > 1:
                yield f"rank {rank} of generation {world.generation} was held by {' and '.join(sorted(workers))}"
        size = facts.size_of(world.generation)
        if size is None:
            yield f"generation {world.generation} trained, but was never announced"
        elif not _is_complete(world, size):
            ranks = ", ".join(str(rank) for rank in sorted(world.holders))
            yield f"generation {world.generation} has ranks 0…{size - 1}, but ranks {ranks} reported steps"


def whole_batches(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    wanted = facts.promise.global_batch
    for world in trained:
        all_heard = len(world.holders) == facts.size_of(world.generation)
        if all_heard and abs(world.samples_per_step - wanted) > 1e-6:
            yield f"a step of generation {world.generation} had {world.samples_per_step:g} samples of {wanted}"


def killed_stay_dead(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    if not facts.kills:
        yield "no worker was killed"
    for kill in facts.kills:
        if kill.survived:
            yield f"processes {', '.join(map(str, kill.survived))} of the killed worker {kill.worker} are still there"
        for world in trained:
            if world.generation > kill.generation and kill.worker in world.members:
                yield f"the killed worker {kill.worker} holds a rank in generation {world.generation}"


def shrank_and_grew(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    full = facts.promise.workers
    for kill in facts.kills:
        after = [facts.size_of(world.generation) for world in trained if world.generation > kill.generation]
        if full - 1 not in after:
            yield f"no step was completed in a world of {full - 1} after {kill.worker} was killed"
        elif full not in after[after.index(full - 1) :]:
            yield f"no step was completed in a world of {full} again after {kill.worker} was killed"


def lost_is_replaced(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    for kill in facts.kills:
        before = _members([world for world in trained if world.generation <= kill.generation])
        after = _members([world for world in trained if world.generation > kill.generation])
        if not after - before:
            yield f"no new worker held a rank after {kill.worker} was killed"


def repeats_are_explained(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    every = facts.promise.checkpoint_every
    for before, after in pairwise(trained):
        repeated = max(before.completed) + 1 - min(after.completed)
        if repeated < 0:
            yield f"generation {after.generation} left out {-repeated} steps after step {max(before.completed)}"
        elif repeated > every:
            yield f"generation {after.generation} repeated {repeated} steps, but every {every} there is a checkpoint"
        elif min(after.completed) % every:
            yield f"generation {after.generation} began at step {min(after.completed)}, where no checkpoint was"


def loss_fell(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    first, last = losses(facts.progress)
    if first is None or last is None:
        yield "no loss was reported"
    elif not last < first:
        yield f"the loss did not fall: {first:.4f} at first, {last:.4f} at last"


def nothing_left(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    if facts.left_behind:
        yield f"{len(facts.left_behind)} processes were left behind: {'; '.join(facts.left_behind)}"


CLAIMS: dict[str, Check] = {
    "the job succeeded": job_succeeded,
    "every step was completed": all_steps_completed,
    "each rank of each world was held once": ranks_held_once,
    "every step had its whole batch": whole_batches,
    "the killed worker never came back": killed_stay_dead,
    "training went on in a smaller world, then in a full one": shrank_and_grew,
    "a new worker took a rank": lost_is_replaced,
    "no more was repeated than since the last checkpoint": repeats_are_explained,
    "the loss fell": loss_fell,
    "no process was left behind": nothing_left,
}


def _is_complete(world: Trained, size: int) -> bool:
    """A world that was halted within its first step may have been heard of from some of its ranks only."""
    ranks, wanted = set(world.holders), set(range(size))
    return ranks == wanted or (ranks < wanted and len(world.completed) == 1)


def _members(worlds: list[Trained]) -> frozenset[WorkerId]:
    return frozenset[WorkerId]().union(*(world.members for world in worlds))
