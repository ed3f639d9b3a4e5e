"""How many workers each cluster should keep for a job.

An allocator decides the numbers, but it may not know yet that a node has recovered: a cluster with members of the world
keeps at least one worker, because zero is an order to end all of them.

Without an allocator workers are spread evenly, but no member of the world is moved. A cluster that gets no further
worker for too long is capped at those it has, and the other clusters are asked for the rest. When every cluster would
be capped, all caps are removed and the time limit doubles.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection

from msgspec.structs import replace

from controlplane.job import texts
from controlplane.job.overdue import patience_s
from controlplane.job.queries import TOPOLOGY_FRESH_S, hears_any_cluster, remembered
from controlplane.job.state import Cluster, Job
from messages.ids import ClusterName, WorkerId

DOUBLINGS_AT_MOST = 3
"""How often the time limit for a share is doubled."""

Counts = dict[ClusterName, int]


def wanted_by_cluster(job: Job) -> Counts:
    """Workers wanted in each known cluster: the allocator's placement, else evenly, in the order of names."""
    names = sorted(job.clusters)
    if not names or job.record.phase.ended or job.record.rests:
        return dict.fromkeys(names, 0)
    if job.supply.awaits_placement or (job.gathers_until_s is not None and job.supply.placement is None):
        return {name: cluster.keeps for name, cluster in sorted(job.clusters.items())}
    if job.supply.placement is not None:
        staying = _staying(job)
        return {name: max(job.supply.placement.get(name, 0), min(1, staying[name])) for name in names}
    if len(names) == 1:
        return {names[0]: job.record.wanted}
    return _spread(job, names)


def clusters_agree(job: Job) -> bool:
    """True if every cluster keeps the wanted number of workers; false before a cluster is heard."""
    if not job.clusters:
        return job.record.phase.ended
    return all(job.clusters[name].keeps == number for name, number in wanted_by_cluster(job).items())


def judge_shares(job: Job, now_s: float) -> Job:
    """Notes which clusters have fewer workers than their share, and caps those that have for too long.

    While no cluster is heard, this master may be cut off, so no time counts."""
    if not _shares(job):
        return job
    if not hears_any_cluster(job, now_s):
        unknown = {name: replace(cluster, behind_s=None) for name, cluster in job.clusters.items()}
        return replace(job, clusters=unknown)
    wanted, warm = wanted_by_cluster(job), job.workers.warm
    clusters = {
        name: _judged(cluster, wanted[name], warm[name], share_patience_s(job), now_s)
        for name, cluster in job.clusters.items()
    }
    rounds = job.share_rounds
    if all(cluster.cap is not None for cluster in clusters.values()):
        clusters = {name: replace(cluster, cap=None) for name, cluster in clusters.items()}
        rounds += 1
    elif all(cluster.behind_s is None for cluster in clusters.values()):
        rounds = 0
    if clusters == job.clusters and rounds == job.share_rounds:
        return job
    return replace(job, clusters=clusters, share_rounds=rounds)


def heard_again(cluster: Cluster, at_s: float) -> Cluster:
    """Removes the cap of a cluster that was silent: it may have been repaired."""
    is_back = at_s - cluster.heard_s > TOPOLOGY_FRESH_S
    return replace(cluster, cap=None, behind_s=None) if is_back else cluster


def share_patience_s(job: Job) -> float:
    return patience_s(job) * 2.0 ** min(job.share_rounds, DOUBLINGS_AT_MOST)


def capped(job: Job) -> list[str]:
    """Describes each cluster that is capped."""
    if not _shares(job):
        return []
    return [
        texts.capped(name, cluster.cap) for name, cluster in sorted(job.clusters.items()) if cluster.cap is not None
    ]


def _shares(job: Job) -> bool:
    supply = job.supply
    waits = supply.awaits_placement or job.gathers_until_s is not None
    alone = supply.placement is not None or waits or len(job.clusters) < 2
    return not (alone or job.record.phase.ended or job.record.rests)


def _judged(cluster: Cluster, wanted: int, warm: int, patience_s: float, now_s: float) -> Cluster:
    if warm >= wanted:
        return cluster if cluster.behind_s is None else replace(cluster, behind_s=None)
    if cluster.behind_s is None or warm > cluster.had_warm:
        return replace(cluster, behind_s=now_s, had_warm=warm)
    if now_s - cluster.behind_s <= patience_s:
        return cluster
    return replace(cluster, behind_s=None, cap=warm)


def _spread(job: Job, names: list[ClusterName]) -> Counts:
    wanted, held = job.record.wanted, _held(job)
    counts = {name: held[name] for name in names}
    if sum(counts.values()) > wanted:
        return filled(dict.fromkeys(names, 0), wanted, counts)
    caps = {name: cap for name in names if (cap := job.clusters[name].cap) is not None}
    return filled(counts, wanted, caps)


def filled(counts: Counts, wanted: int, limits: Counts) -> Counts:
    """Raises the lowest counts to one level, none above its limit. The first clusters by name get the remainder."""

    def raised(level: int) -> Counts:
        return {name: max(number, min(level, limits.get(name, wanted))) for name, number in counts.items()}

    level = bisect_right(range(wanted + 1), wanted, key=lambda level: sum(raised(level).values())) - 1
    filled = raised(level)
    rest = wanted - sum(filled.values())
    lowest = sorted(name for name in filled if counts[name] <= level < limits.get(name, wanted))
    return filled | dict.fromkeys(lowest[:rest], level + 1)


@remembered
def _held(job: Job) -> Counter[ClusterName]:
    """Members of the current and the prepared world, by cluster."""
    return _members_by_cluster(job, frozenset())


@remembered
def _staying(job: Job) -> Counter[ClusterName]:
    """Members of the current and the prepared world without a notice, by cluster."""
    return _members_by_cluster(job, job.workers.noticed)


def _members_by_cluster(job: Job, leaving: Collection[WorkerId]) -> Counter[ClusterName]:
    counts: Counter[ClusterName] = Counter()
    counted: Collection[WorkerId] = ()
    for world in (job.record.assignment, job.record.prepared):
        if world is not None:
            counts += world.by_cluster
            left_out = {*(world.by_worker.keys() - job.workers.keys()), *(world.by_worker.keys() & counted)}
            left_out |= world.by_worker.keys() & leaving
            counts.subtract(Counter(world.by_worker[name].cluster for name in left_out))
            counted = world.by_worker.keys()
    return counts
