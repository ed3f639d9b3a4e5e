"""The entry of the job core: learn from all queued events, then reconcile once."""

from math import inf

from msgspec.structs import replace

from controlplane.job.effects import JobEffect
from controlplane.job.events import JobEvent, Ticked
from controlplane.job.learn import learn_all
from controlplane.job.queries import TOPOLOGY_FRESH_S
from controlplane.job.reconcile import reconcile, wake_at_s
from controlplane.job.state import Cluster, Job
from controlplane.job.story import tell
from controlplane.job.turn import Turn
from runtime.decision import Decision

_FIELDS = tuple(name for name in Job.__struct_fields__ if name not in ("workers", "clusters"))


def decide(job: Job, *batch: JobEvent) -> Decision[Job, JobEffect]:
    """Learns from the events, then reconciles. Each decision requests again what is not confirmed.

    Reports without news are only learned, until time itself could change the decision."""
    now_s = max(event.at_s for event in batch)
    learned = learn_all(job, batch)
    if now_s < job.due_s and _is_unchanged(job, learned) and not any(isinstance(each, Ticked) for each in batch):
        return Decision(learned, why=job.why, wake_at_s=job.due_s if job.due_s < inf else None)
    turn = Turn(learned, now_s)
    reconcile(turn)
    due_s = wake_at_s(turn)
    after = replace(turn.job, due_s=inf if due_s is None else due_s)
    return Decision(after, (*turn.effects, *tell(job, after)), after.why, due_s)


def _is_unchanged(before: Job, after: Job) -> bool:
    """True if nothing changed but the time and the step of the clusters' reports."""
    if after.workers.changed or any(getattr(before, name) is not getattr(after, name) for name in _FIELDS):
        return False
    if after.clusters is before.clusters:
        return True
    if after.clusters.keys() != before.clusters.keys():
        return False
    pairs = ((before.clusters[name], cluster) for name, cluster in after.clusters.items())
    return all(_is_only_heard(old, new) for old, new in pairs if old is not new)


def _is_only_heard(old: Cluster, new: Cluster) -> bool:
    was_fresh = new.heard_s - old.heard_s <= TOPOLOGY_FRESH_S
    return was_fresh and replace(new, heard_s=old.heard_s, step=old.step) == old
