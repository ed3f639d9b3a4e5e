"""What the nodes of a job do, and what its world sends from zone to zone in a step."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from controlplane.catalog.links import Links
from controlplane.job.state import Job
from controlplane.ledger.events import Hop
from controlplane.ledger.state import Doing
from messages.ids import ClusterName, WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from messages.worlds import Member

NodeOf = Callable[[ClusterName, WorkerId], str]
"""Empty where it is not known."""
MAKING = (Phase.FORMING, Phase.RESHAPING)


def doings_of(job: Job, node_of: NodeOf) -> dict[str, Doing]:
    """Of those nodes whose workers have spoken."""
    world = job.record.assignment
    members = frozenset(member.worker for member in world.members) if world is not None else frozenset()
    doings: dict[str, Doing] = {}
    for worker, known in job.workers.items():
        node = node_of(known.cluster, worker)
        if node and doings.get(node) is not Doing.WORKING:
            warm = known.phase is not WorkerPhase.WARMING
            doings[node] = _doing(job.record.phase, is_member=worker in members) if warm else Doing.STARTING
    return doings


def _doing(phase: Phase, *, is_member: bool) -> Doing:
    """While a world is being made it is not known who will hold a rank: all of them take part in it."""
    if phase in MAKING:
        return Doing.RECOVERING
    return Doing.WORKING if phase is Phase.RUNNING and is_member else Doing.IDLE


def hops_of(members: Sequence[Member], gradient_bytes: int, links: Links) -> tuple[Hop, ...]:
    """An estimate from the bytes of the gradients; none without members in several zones.

    In the ring through all members, neighbours in rank, each link carries 2(n−1)/n of them (see docs/catalog.md).
    """
    zones = [member.zone for member in sorted(members, key=lambda member: member.first_rank)]
    if len(zones) < 2:
        return ()
    over_a_link = 2 * (len(zones) - 1) * gradient_bytes // len(zones)
    crossings = Counter(pair for pair in pairwise((*zones, zones[0])) if pair[0] != pair[1] and all(pair))
    return tuple(
        Hop(sender, receiver, count * over_a_link, links.between(sender, receiver).egress_micro_usd_per_gib)
        for (sender, receiver), count in sorted(crossings.items())
        if over_a_link
    )
