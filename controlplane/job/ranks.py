"""Members and ranks of a world, computed from the available workers.

Ranks follow region, zone and worker id, so that adjacent ranks are close on the network, and two masters that see the
same members agree.
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


def choose(workers: Iterable[Worker], wanted: int, current: Collection[WorkerId], sizes: Workers) -> list[Worker]:
    """Chooses an allowed number of workers, at most `wanted`, and prefers those of the current world."""
    best = sorted(workers, key=lambda worker: (worker.worker not in current, _place(worker)))[:wanted]
    return best[: sizes.fitting(len(best))]


def whole_ranks(workers: Iterable[Worker], replica: int) -> int:
    """Number of ranks of these workers, in whole replicas."""
    slots = sum(worker.slots for worker in workers)
    return slots - slots % replica


def arrange(workers: Iterable[Worker], replica: int) -> Arrangement:
    """Assigns ranks in whole replicas. Surplus ranks are left out, and so is a worker without any rank."""
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
    """Samples of each rank in one step: even shares, and one more for the first ranks if they do not divide."""
    even, more = divmod(global_batch, world_size)
    return tuple(even + (rank < more) for rank in range(world_size))


def _place(worker: Worker) -> tuple[str, str, str]:
    return worker.region, worker.zone, worker.worker
