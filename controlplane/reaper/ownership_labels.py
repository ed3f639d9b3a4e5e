"""The labels that name the owner of a cloud resource. The records on the bus show whether the owner lives.

The labels are written once, at creation: fleet, job, time of the request, and the bus that has the job's record. While
the record shows that the job lives, the job owns all resources with its name. No label is ever renewed.
"""

import re
from collections.abc import Mapping
from datetime import datetime

from messages.labels import BUS_LABEL, LEASE_LABEL

YOUNG_S = 300.0
"""Seconds for which a new resource of an unknown job stays: a master may be creating both."""

_SECONDS = re.compile(r"\d{1,11}\Z")


def lease_of(asked_at: float, bus: str) -> dict[str, str]:
    """The labels of a new request; `asked_at` is in Unix seconds."""
    return {LEASE_LABEL: str(int(asked_at)), BUS_LABEL: bus}


def bus_of(made_at: datetime) -> str:
    """The identity of a bus: the time at which its records began. A bus that lost them is another one."""
    return str(round(made_at.timestamp() * 1000))


def is_of_bus(labels: Mapping[str, str], bus: str) -> bool:
    return labels.get(BUS_LABEL) == bus


def asked_at(labels: Mapping[str, str]) -> float | None:
    """Unix seconds of the request; None if the label is missing or invalid."""
    text = labels.get(LEASE_LABEL, "")
    return float(text) if _SECONDS.match(text) else None
