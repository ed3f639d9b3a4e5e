"""What a job learns about its size and its budget."""

from typing import assert_never

from msgspec.structs import replace

from controlplane.job import events
from controlplane.job.scaling import refuse_size
from controlplane.job.state import Job
from controlplane.job.texts import budget_spent
from messages.criteria import WhenSpent
from messages.records import Record


def learn_budget(
    job: Job, event: events.ScaleAsked | events.BudgetReached | events.BudgetFreed | events.BudgetRaised
) -> Job:
    match event:
        case events.ScaleAsked(_, workers):
            if refuse_size(job.spec.workers, workers) is not None:
                return job
            reached = job.record.budget_reached and workers >= job.record.wanted
            grows = workers > job.record.wanted or (job.script.grows_at_once and workers == job.record.wanted)
            record = replace(job.record, wanted=workers, budget_reached=reached)
            return replace(job, record=record, script=replace(job.script, grows_at_once=grows))
        case events.BudgetReached():
            return replace(job, record=_reach_budget(job.record, event))
        case events.BudgetFreed(at_s, action):
            return _free(job, action, at_s)
        case events.BudgetRaised(_, usd):
            most = max(usd, job.record.max_usd_total or 0.0)
            return replace(job, record=replace(job.record, max_usd_total=most, budget_reached=False))
        case _:
            assert_never(event)


def _reach_budget(record: Record, event: events.BudgetReached) -> Record:
    """Applies the action, unless a person has since raised the budget or reduced the workers."""
    judged, why = event.judged, event.why
    eased = record.wanted < judged.wanted or (record.max_usd_total or 0.0) > (judged.max_usd_total or 0.0)
    if record.phase.ended or eased:
        return record
    match event.action:
        case WhenSpent.PAUSE:
            grace_s = event.grace_s if record.stop_grace_s is None else record.stop_grace_s
            return replace(record, paused=why, stop_grace_s=grace_s, budget_reached=True)
        case WhenSpent.ON_DEMAND_OFF:
            return replace(record, spot_only=why, budget_reached=True)
        case WhenSpent.STOP:
            grace_s = event.grace_s if record.stop_grace_s is None else record.stop_grace_s
            stop_why = record.stop_why or budget_spent(why)
            return replace(record, stop_why=stop_why, stop_grace_s=grace_s)
        case _:
            assert_never(event.action)


def _free(job: Job, action: WhenSpent, at_s: float) -> Job:
    if action is WhenSpent.ON_DEMAND_OFF:
        return replace(job, record=replace(job.record, spot_only=None))
    if job.record.paused is None:
        return job
    starts_again = job.pause.starts_again or job.record.rests
    grace_s = job.record.stop_grace_s if job.record.stop_why is not None else None
    continued = replace(job.record, paused=None, stop_grace_s=grace_s)
    return replace(job, record=continued, pause=replace(job.pause, starts_again=starts_again, waiting_since_s=at_s))
