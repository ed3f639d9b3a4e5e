"""With machines: GPUs that ranks see, a notice, a preemption that training survives, a removal by name."""

import time

from messages.api import EventLine
from messages.events import EventKind
from tradewind.trial.gcloud import Machine
from tradewind.trial.stage import Trial
from tradewind.trial.verdicts import Verdict, failed, passed, skipped

DEVICE = "device: "
"""How the job of the trial begins the line that names what a rank computes on."""
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
        return failed(f"{named}. Was the image built with CUDA, and does the job ask for `pod.gpu`?")
    return passed(f"{named}; training {took_s:.0f} s after the request")


async def notice(trial: Trial) -> Verdict:
    await trial.running()
    machine = await _spot_machine(trial)
    if machine is None:
        return skipped("no spot machine of the job was found, and machines on demand are not preempted")
    since = time.time()
    await trial.gcloud.preempt(machine)

    async def told() -> EventLine | None:
        return next((event for event in await trial.events(since) if event.kind in PREEMPTED), None)

    event = await trial.until(told, trial.bounds.notice_s)
    if event is None:
        return failed(f"{machine.name} was preempted, and no worker had a notice within {trial.bounds.notice_s:g} s")
    if event.kind == EventKind.WORKER_GONE:
        return failed(f"{machine.name} was preempted, and {event.text} without a notice")
    return passed(
        f"{machine.name}: {event.text} {event.at - since:.1f} s after simulate-maintenance-event ({event.why})"
    )


async def preemption(trial: Trial) -> Verdict:
    """Training continues with fewer, then with a new machine. Alone, it preempts a machine by itself.

    Until its notice is over, the old worker may be in the world: that is not yet a replacement.
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
        return failed(f"the job counts {view.failures} failures of the script, but a machine was preempted")
    took_s = time.monotonic() - began_s
    return passed(f"a world of {view.world_size} trains again after {took_s:.0f} s, at step {view.step}")


async def removal(trial: Trial) -> Verdict:
    """One worker fewer removes one particular machine, and nothing comes back in its place."""
    await trial.running()
    job, fewer = trial.spec.name, trial.spec.workers.max - 1
    if fewer < trial.spec.workers.min:
        return skipped("the job has as many workers as it needs at least")
    before = {machine.id: machine for machine in await trial.gcloud.machines(job)}
    trial.changes(f"tradewind scale {job} {fewer}")
    began_s = time.monotonic()
    await trial.api.scale(job, fewer)

    async def removed() -> set[str] | None:
        now = {machine.id for machine in await trial.gcloud.machines(job)}
        return now if len(now) <= fewer or now - set(before) else None

    kept = await trial.until(removed, trial.bounds.removed_s)
    took_s = time.monotonic() - began_s
    if kept is None:
        return failed(
            f"{len(before)} machines were there, and {fewer} should be, {trial.bounds.removed_s:g} s after the request"
        )
    kept &= set(before)
    if len(kept) < fewer:
        return failed(
            f"of {_names(before, set(before))} only {_names(before, kept)} are left: the wrong ones were removed"
        )
    extra = await trial.until(lambda: _others(trial, kept), trial.bounds.settled_s)
    if extra:
        return failed(f"{', '.join(sorted(extra))} came in place of what was removed")
    gone = _names(before, set(before) - kept)
    return passed(f"{gone} was removed after {took_s:.0f} s, nothing came back in {trial.bounds.settled_s:g} s")


async def _others(trial: Trial, kept: set[str]) -> list[str] | None:
    new = [machine.name for machine in await trial.gcloud.machines(trial.spec.name) if machine.id not in kept]
    return new or None


def _names(machines: dict[str, Machine], ids: set[str]) -> str:
    return ", ".join(sorted(machines[each].name for each in ids if each in machines)) or "none"


async def _spot_machine(trial: Trial) -> Machine | None:
    for machine in await trial.gcloud.machines(trial.spec.name):
        if machine.is_spot and machine.status == "RUNNING":
            return machine
    return None


async def _preempted(trial: Trial) -> set[str]:
    """Workers that had a notice, or were gone without one, since the job was submitted."""
    view = await trial.view()
    events = [] if view is None else await trial.events(view.submitted_at)
    return {str(event.fields.get("worker", "")) for event in events if event.kind in PREEMPTED}
