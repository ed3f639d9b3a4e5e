"""Checks of commands. The core learns nothing from a refused command."""

from agents.cluster.state import ClusterState
from messages.clusters import Answer, KeepWorkers, RemoveWorkers, WorkerTemplate
from messages.ids import NO_EPOCH, Epoch, is_name

SLOTS_AT_MOST = 64
REMOVED_AT_ONCE_AT_MOST = 1000
ENVIRONMENT_AT_MOST = 32_000
ENVIRONMENTS_AT_MOST = 256_000
"""Characters of the environments of all jobs together. The saved record must fit into one message."""

TAKEN = Answer(ok=True)


def answer_to(state: ClusterState, command: KeepWorkers | RemoveWorkers, epoch: Epoch | None) -> Answer:
    why = _refusal(state, command, epoch or NO_EPOCH)
    return TAKEN if why is None else Answer(ok=False, why=why)


def epoch_is_over(epoch: Epoch, newest: Epoch) -> str:
    return f"epoch {epoch} is over: the newest epoch is {newest}"


def epoch_is_unknown(epoch: Epoch, claim: Epoch) -> str:
    return f"epoch {epoch} is unknown: the newest claim to lead is {claim}"


def _refusal(state: ClusterState, command: KeepWorkers | RemoveWorkers, epoch: Epoch) -> str | None:
    if epoch < state.leadership.epoch:
        return epoch_is_over(epoch, state.leadership.epoch)
    if state.leadership.claim is not None and epoch > state.leadership.claim:
        return epoch_is_unknown(epoch, state.leadership.claim)
    if not is_name(command.job):
        return f"{command.job[:70]!r} is not the name of a job"
    if isinstance(command, RemoveWorkers):
        too_many = len(command.workers) > REMOVED_AT_ONCE_AT_MOST
        return f"at most {REMOVED_AT_ONCE_AT_MOST} workers can be removed at once" if too_many else None
    return _refusal_to_keep(state, command)


def _refusal_to_keep(state: ClusterState, keep: KeepWorkers) -> str | None:
    limit = state.rules.max_workers
    others = sum(wanted.count for job, wanted in state.wanted.items() if job != keep.job)
    if keep.count < 0:
        return f"cannot keep {keep.count} workers"
    if keep.count and state.stopping:
        return "this cluster-controller is stopping"
    if keep.count and keep.count + others > limit:
        kept = f", {others} of them for other jobs" if others else ""
        return f"cannot keep {keep.count} workers: this cluster has room for {limit}{kept}"
    sizes = [_size_of(wanted.template) for job, wanted in state.wanted.items() if job != keep.job]
    if sum(sizes) + _size_of(keep.template) > ENVIRONMENTS_AT_MOST:
        return f"the environments of all jobs together have more than {ENVIRONMENTS_AT_MOST} characters"
    return _problem_of(keep.template)


def _problem_of(template: WorkerTemplate) -> str | None:
    if not 1 <= template.slots <= SLOTS_AT_MOST:
        return f"a worker holds 1 to {SLOTS_AT_MOST} ranks, not {template.slots}"
    if template.python is not None and (not template.python or "\0" in template.python):
        return "the path of the job's interpreter is empty or has a null byte"
    if any(not name or "=" in name or "\0" in name + value for name, value in template.env.items()):
        return "the environment has an invalid name or value: names have no '=', and neither has a null byte"
    if _size_of(template) > ENVIRONMENT_AT_MOST:
        return f"the environment has more than {ENVIRONMENT_AT_MOST} characters"
    return None


def _size_of(template: WorkerTemplate) -> int:
    return sum(len(name) + len(value) for name, value in template.env.items())
