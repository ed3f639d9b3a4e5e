"""What a job learns of its size and its money: what a person asked for, and what the budget says to it."""

from typing import assert_never

from msgspec.structs import replace

from controlplane.job import events
from controlplane.job.state import Job
from messages.criteria import WhenSpent
from messages.records import Record


def learn_budget(
    job: Job, event: events.ScaleAsked | events.BudgetReached | events.BudgetFreed | events.BudgetRaised
) -> Job:
    match event:
        case events.ScaleAsked(_, workers):
            reached = job.record.budget_reached and workers >= job.record.wanted
            grows = workers > job.record.wanted or (job.script.grows_at_once and workers == job.record.wanted)
            record = replace(job.record, wanted=workers, budget_reached=reached)
            return replace(job, record=record, script=replace(job.script, grows_at_once=grows))
        case events.BudgetReached():
            return replace(job, record=_reach_budget(job.record, event))
        case events.BudgetFreed(at_s, action, _):
            return _free(job, action, at_s)
        case events.BudgetRaised(_, usd):
            most = max(usd, job.record.max_usd_total or 0.0)
            return replace(job, record=replace(job.record, max_usd_total=most, budget_reached=False))
        case _:
            assert_never(event)


def _reach_budget(record: Record, event: events.BudgetReached) -> Record:
    """Not by a verdict over less money or more workers: what a person has changed since is judged anew."""
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
            stop_why = record.stop_why or f"its budget is spent: {why}"
            return replace(record, stop_why=stop_why, stop_grace_s=grace_s)
        case _:
            assert_never(event.action)


def _free(job: Job, action: WhenSpent, at_s: float) -> Job:
    if action is WhenSpent.ON_DEMAND_OFF:
        return replace(job, record=replace(job.record, spot_only=None))
    if job.record.paused is None:
        return job
    begins_anew = job.pause.begins_anew or job.record.rests
    grace_s = job.record.stop_grace_s if job.record.stop_why is not None else None
    continued = replace(job.record, paused=None, stop_grace_s=grace_s)
    return replace(job, record=continued, pause=replace(job.pause, begins_anew=begins_anew, waiting_since_s=at_s))
