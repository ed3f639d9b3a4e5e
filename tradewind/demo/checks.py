"""The claims of the demonstration. Each is a function from the facts to the problems that contradict the claim."""

from collections.abc import Callable, Iterator

from messages.ids import WorkerId
from tradewind.demo.changes import Kind, changes
from tradewind.demo.facts import Facts, Trained, losses
from tradewind.sdk.certificate import Certificate

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
            continue
        seen = {moment.rank for moment in facts.traced if moment.generation == world.generation}
        if seen != set(range(size)) and not (seen < set(range(size)) and len(world.completed) == 1):
            ranks = ", ".join(str(rank) for rank in sorted(seen))
            yield f"generation {world.generation} has ranks 0…{size - 1}, but only ranks {ranks} trained"


def none_restarted(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    if not facts.traced:
        yield "the trainers wrote no trace"
    for change in changes(facts, trained):
        if change.kind is Kind.RESTART:
            yield f"the trainers of generation {change.to_generation} restarted"
    for worker, pids in sorted(_trainers(facts, trained).items()):
        if len(pids) > 1:
            yield f"worker {worker} had {len(pids)} trainers in turn"


def nothing_repeated(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    for change in changes(facts, trained):
        if change.repeated_steps:
            yield f"generation {change.to_generation} computed {change.repeated_steps} steps again"


def certificate_holds(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    """The certificate is exactly that of a run without lost or repeated samples."""
    steps = facts.promise.steps
    promised = Certificate(steps=steps, samples=steps * facts.promise.global_batch).message()
    if facts.certificate != promised:
        yield f"the certificate is {facts.certificate!r}, not {promised!r}"


def killed_stay_dead(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    if not facts.kills:
        yield "no worker was killed"
    for kill in facts.kills:
        if kill.survived:
            yield f"processes {', '.join(map(str, kill.survived))} of the killed worker {kill.worker} still run"
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


def loss_fell(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    first, last = losses(facts.progress)
    if first is None or last is None:
        yield "no loss was reported"
    elif not last < first:
        yield f"the loss did not fall: from {first:.4f} to {last:.4f}"


def nothing_left(facts: Facts, trained: list[Trained]) -> Iterator[str]:
    if facts.left_behind:
        yield f"{len(facts.left_behind)} processes were left behind: {'; '.join(facts.left_behind)}"


CLAIMS: dict[str, Check] = {
    "the job succeeded": job_succeeded,
    "every step was completed": all_steps_completed,
    "no step was computed again": nothing_repeated,
    "the certificate holds: no sample lost, none repeated": certificate_holds,
    "no trainer restarted": none_restarted,
    "each rank of each world was held once": ranks_held_once,
    "the killed worker did not return": killed_stay_dead,
    "training continued in a smaller world, then in a full one": shrank_and_grew,
    "a new worker took a rank": lost_is_replaced,
    "the loss fell": loss_fell,
    "no process was left behind": nothing_left,
}


def _trainers(facts: Facts, trained: list[Trained]) -> dict[WorkerId, set[int]]:
    """The processes that completed steps, by the worker that held their rank."""
    pids: dict[WorkerId, set[int]] = {}
    for world in trained:
        for moment in facts.traced:
            if moment.generation == world.generation and moment.is_commit:
                for worker in world.holders.get(moment.rank, ()):
                    pids.setdefault(worker, set()).add(moment.pid)
    return pids


def _members(worlds: list[Trained]) -> frozenset[WorkerId]:
    return frozenset[WorkerId]().union(*(world.members for world in worlds))
