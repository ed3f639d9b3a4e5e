"""Checks with machines: ranks see their GPUs, a notice arrives, training survives a preemption, one node is removed."""

import time

from messages.api import EventLine
from messages.events import EventKind
from tradewind.trial.gcloud import Machine
from tradewind.trial.stage import Trial
from tradewind.trial.verdicts import Verdict, failed, passed, skipped

DEVICE = "device: "
"""The prefix of the line in which a rank of the trial's job names its device."""
PREEMPTED = (EventKind.WORKER_NOTICED, EventKind.WORKER_GONE)
"""Events of a worker whose machine is preempted."""


async def gpu(trial: Trial) -> Verdict:
    began_s = time.monotonic()
    view = await trial.running()
    took_s = time.monotonic() - began_s
    lines = [line async for line in trial.api.logs(trial.spec.name) if line.line.startswith(DEVICE)]
    devices = {line.rank: line.line.removeprefix(DEVICE).strip() for line in lines}
    named = (
        ", ".join(f"rank {rank}: {device}" for rank, device in sorted(devices.items())) or "no rank named its device"
    )
    if len(devices) < view.world_size or any(not device.startswith("cuda") for device in devices.values()):
        return failed(f"{named}. Check that the image contains CUDA and that the job sets `pod.gpu`")
    return passed(f"{named}; training {took_s:.0f} s after the request")


async def notice(trial: Trial) -> Verdict:
    await trial.running()
    machine = await _spot_machine(trial)
    if machine is None:
        return skipped("the job has no spot machine, and on-demand machines are not preempted")
    since = time.time()
    await trial.gcloud.preempt(machine)

    async def reported() -> EventLine | None:
        return next((event for event in await trial.events(since) if event.kind in PREEMPTED), None)

    event = await trial.until(reported, trial.bounds.notice_s)
    if event is None:
        return failed(f"{machine.name} was preempted, but no worker got a notice within {trial.bounds.notice_s:g} s")
    if event.kind == EventKind.WORKER_GONE:
        return failed(no_notice(machine.name, event.text))
    return passed(
        f"{machine.name}: {event.text} {event.at - since:.1f} s after simulate-maintenance-event ({event.why})"
    )


async def preemption(trial: Trial) -> Verdict:
    """Check that training continues with fewer workers and then with a new machine.

    Without the check `notice` before it, it preempts a machine itself. A world that still has the preempted worker
    does not count.
    """
    before = await trial.view()
    if not await _preempted(trial):
        first = await notice(trial)
        if not await _preempted(trial):
            return first
    began_s = time.monotonic()
    view = await trial.trains_with(trial.spec.workers.max, trial.bounds.replaced_s, await _preempted(trial))
    if before is not None and before.step is not None and view.step is not None and view.step < before.step:
        return failed(f"training went back from step {before.step} to {view.step}")
    if view.failures:
        return failed(f"the job counts the preemption as a failure of the script ({view.failures} failures)")
    took_s = time.monotonic() - began_s
    return passed(f"a world of {view.world_size} trains again after {took_s:.0f} s, at step {view.step}")


async def removal(trial: Trial) -> Verdict:
    """Check that a scale-down by one worker removes one machine, and that no other machine starts."""
    await trial.running()
    job, fewer = trial.spec.name, trial.spec.workers.max - 1
    if fewer < trial.spec.workers.min:
        return skipped("the job already has its minimum of workers")
    before = {machine.id: machine for machine in await trial.gcloud.machines(job)}
    trial.changes(f"tradewind scale {job} {fewer}")
    began_s = time.monotonic()
    await trial.api.scale(job, fewer)

    async def removed() -> set[str] | None:
        now = {machine.id for machine in await trial.gcloud.machines(job)}
        return now if len(now) <= fewer or now - set(before) else None

    left = await trial.until(removed, trial.bounds.removed_s)
    took_s = time.monotonic() - began_s
    if left is None:
        return failed(not_removed(len(before), fewer, trial.bounds.removed_s))
    left &= set(before)
    if len(left) < fewer:
        return failed(too_many_removed(_names(before, set(before)), _names(before, left)))
    extra = await trial.until(lambda: _others(trial, left), trial.bounds.settled_s)
    if extra:
        return failed(replaced_by(", ".join(sorted(extra))))
    gone = _names(before, set(before) - left)
    return passed(f"{gone} was removed after {took_s:.0f} s; no machine started within {trial.bounds.settled_s:g} s")


def no_notice(machine: str, what: str) -> str:
    return f"{machine} was preempted, but {what} without a notice"


def not_removed(machines: int, wanted: int, after_s: float) -> str:
    return f"the job should have {wanted} of {machines} machines {after_s:g} s after the request, but has more"


def too_many_removed(before: str, left: str) -> str:
    return f"of {before} only {left} are left: Tradewind removed the wrong machines"


def replaced_by(names: str) -> str:
    return f"{names} replaced the machine that was removed"


async def _others(trial: Trial, left: set[str]) -> list[str] | None:
    new = [machine.name for machine in await trial.gcloud.machines(trial.spec.name) if machine.id not in left]
    return new or None


def _names(machines: dict[str, Machine], ids: set[str]) -> str:
    return ", ".join(sorted(machines[each].name for each in ids if each in machines)) or "none"


async def _spot_machine(trial: Trial) -> Machine | None:
    for machine in await trial.gcloud.machines(trial.spec.name):
        if machine.is_spot and machine.status == "RUNNING":
            return machine
    return None


async def _preempted(trial: Trial) -> set[str]:
    """Workers that got a notice, or were lost without one, since the job was submitted."""
    view = await trial.view()
    events = [] if view is None else await trial.events(view.submitted_at)
    return {str(event.fields.get("worker", "")) for event in events if event.kind in PREEMPTED}
