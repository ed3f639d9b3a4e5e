"""Who is in a world, and with which ranks: a pure function of the workers that can be had.

Ranks follow region, zone and worker id, so that neighbours in rank are neighbours on the network and two masters that
see the same members agree.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from controlplane.job.workers import Worker
from messages.ids import Rank, WorkerId
from messages.jobs import Workers
from messages.worlds import Member


@dataclass(frozen=True, slots=True)
class Arrangement:
    members: tuple[Member, ...]

    @property
    def world_size(self) -> int:
        return sum(member.ranks for member in self.members)


def choose(workers: Iterable[Worker], wanted: int, present: Collection[WorkerId], sizes: Workers) -> list[Worker]:
    """At most `wanted` of them, and an allowed number; those that are in the world now stay in it."""
    best = sorted(workers, key=lambda worker: (worker.worker not in present, _place(worker)))[:wanted]
    return best[: sizes.fitting(len(best))]


def whole_ranks(workers: Iterable[Worker], replica: int) -> int:
    """Ranks in the world of these workers, in whole replicas."""
    slots = sum(worker.slots for worker in workers)
    return slots - slots % replica


def arrange(workers: Iterable[Worker], replica: int) -> Arrangement:
    """Whole replicas only: ranks that would make part of one are left out, and so is a worker left without any."""
    in_order = sorted(workers, key=_place)
    world_size = sum(worker.slots for worker in in_order)
    left = world_size - world_size % replica
    members: list[Member] = []
    first_rank = 0
    for worker in in_order:
        ranks = min(worker.slots, left)
        if ranks == 0:
            continue
        members.append(
            Member(
                worker=worker.worker,
                cluster=worker.cluster,
                region=worker.region,
                zone=worker.zone,
                address=worker.address,
                group_rank=len(members),
                first_rank=Rank(first_rank),
                ranks=ranks,
            )
        )
        first_rank += ranks
        left -= ranks
    return Arrangement(tuple(members))


def ranks_of(member: Member) -> tuple[Rank, ...]:
    return tuple(Rank(rank) for rank in range(member.first_rank, member.first_rank + member.ranks))


def shares(global_batch: int, world_size: int) -> tuple[int, ...]:
    """The samples of each rank in one step: as even as can be, the first ranks take what is left over."""
    even, more = divmod(global_batch, world_size)
    return tuple(even + (rank < more) for rank in range(world_size))


def _place(worker: Worker) -> tuple[str, str, str]:
    return worker.region, worker.zone, worker.worker
