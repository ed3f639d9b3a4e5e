"""The machines of each job in a listing of the cloud. Pure."""

from collections.abc import Iterable

from controlplane.clouds.interface import MachineInfo
from controlplane.ledger.events import Found
from messages.ids import JobName
from messages.labels import FLEET_LABEL, JOB_LABEL


def found_by_job(machines: Iterable[MachineInfo], fleet: str) -> dict[JobName, tuple[Found, ...]]:
    found: dict[JobName, tuple[Found, ...]] = {}
    for each in machines:
        job = JobName(each.labels.get(JOB_LABEL, ""))
        if job and each.labels.get(FLEET_LABEL, fleet) == fleet:
            found[job] = (*found.get(job, ()), _found(each))
    return found


def _found(machine: MachineInfo) -> Found:
    return Found(machine.id, machine.name, machine.kind, round(machine.started_at * 1000))
