"""Decoding of Compute's lists of machines. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from controlplane.catalog.accelerators import canonical
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import MachineInfo

MACHINE_FIELDS = (
    "nextPageToken,items/*/instances(id,name,zone,machineType,status,labels,creationTimestamp,lastStartTimestamp,"
    "scheduling(provisioningModel,preemptible),guestAccelerators)"
)
FREE = ("TERMINATED", "STOPPED", "SUSPENDED")
"""States in which a machine costs nothing except for its disks."""


class Scheduling(Struct, frozen=True, rename="camel"):
    provisioning_model: str = "STANDARD"
    preemptible: bool = False


class GuestAccelerator(Struct, frozen=True, rename="camel"):
    accelerator_type: str
    accelerator_count: Annotated[int, Meta(ge=0)] = 1


class Instance(Struct, frozen=True, rename="camel"):
    id: str
    name: str
    zone: str
    machine_type: str
    creation_timestamp: datetime
    last_start_timestamp: datetime | None = None
    status: str = "RUNNING"
    labels: dict[str, str] = field(default_factory=dict)
    scheduling: Scheduling = Scheduling()
    guest_accelerators: tuple[GuestAccelerator, ...] = ()


def machines_in(answer: Mapping[str, Any]) -> Iterator[MachineInfo]:
    """Machines of an aggregated list that cost money. Invalid items are skipped."""
    items = answer.get("items")
    for scope in items.values() if isinstance(items, Mapping) else ():
        reported = scope.get("instances") if isinstance(scope, Mapping) else None
        for each in reported if isinstance(reported, list) else ():
            try:
                instance = msgspec.convert(each, Instance)
            except msgspec.ValidationError:
                continue
            if instance.status not in FREE:
                yield _machine(instance)


def _machine(instance: Instance) -> MachineInfo:
    accelerator = next(iter(instance.guest_accelerators), None)
    started = instance.last_start_timestamp or instance.creation_timestamp
    return MachineInfo(
        id=instance.id,
        name=instance.name,
        kind=MachineKind(
            _last_part(instance.zone),
            _last_part(instance.machine_type),
            canonical(_last_part(accelerator.accelerator_type)) if accelerator is not None else "",
            accelerator.accelerator_count if accelerator is not None else 0,
            spot=instance.scheduling.provisioning_model == "SPOT" or instance.scheduling.preemptible,
        ),
        started_at=started.timestamp(),
        labels=instance.labels,
    )


def _last_part(url: str) -> str:
    return url.rpartition("/")[2]
