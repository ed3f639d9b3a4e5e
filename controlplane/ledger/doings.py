"""What the nodes of a job do, from what its core knows of its workers."""

from collections.abc import Callable

from controlplane.job.state import Job, Phase
from controlplane.ledger.state import Doing
from messages.ids import ClusterName, WorkerId
from messages.workers import WorkerPhase

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
