"""The activity of a job's nodes, and the bytes that its world sends between zones in a step."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from controlplane.catalog.links import Links
from controlplane.job.state import Job
from controlplane.ledger.events import Hop
from controlplane.ledger.state import Activity
from messages.ids import ClusterName, WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from messages.worlds import Member

NodeOf = Callable[[ClusterName, WorkerId], str]
"""Returns the node of a worker; empty if it is not known."""
FORMING_PHASES = (Phase.FORMING, Phase.RESHAPING)


def activities_of(job: Job, node_of: NodeOf) -> dict[str, Activity]:
    """The activity of each node whose workers have reported."""
    world = job.record.assignment
    members = frozenset(member.worker for member in world.members) if world is not None else frozenset()
    activities: dict[str, Activity] = {}
    for worker, known in job.workers.items():
        node = node_of(known.cluster, worker)
        if node and activities.get(node) is not Activity.WORKING:
            warm = known.phase is not WorkerPhase.WARMING
            activities[node] = _activity(job.record.phase, is_member=worker in members) if warm else Activity.STARTING
    return activities


def _activity(phase: Phase, *, is_member: bool) -> Activity:
    """The activity of a warm worker. While a world forms, all workers recover: its members are not known yet."""
    if phase in FORMING_PHASES:
        return Activity.RECOVERING
    return Activity.WORKING if phase is Phase.RUNNING and is_member else Activity.IDLE


def hops_of(members: Sequence[Member], gradient_bytes: int, links: Links) -> tuple[Hop, ...]:
    """An estimate of the bytes between zones from the bytes of the gradients; empty for members in one zone.

    In the ring of n members, in the order of ranks, each link carries 2(n−1)/n of the gradients (docs/catalog.md).
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
