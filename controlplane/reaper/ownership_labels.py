"""A lease on what is made in the cloud: who answers for it is in its labels, until when is in the bus's records.

The labels are written once, when a thing is made, and never changed: fleet, job, when it was asked for, and over which
bus, since the job's record is there and nowhere else. While the record says that the job lives, it answers for all that
carries its name. Nothing has to be renewed in the cloud.
"""

import re
from collections.abc import Mapping
from datetime import datetime

from messages.labels import BUS_LABEL, LEASE_LABEL

YOUNG_S = 300.0
"""So long a thing is left alone whose job is not known: somebody may be just making both."""

_SECONDS = re.compile(r"\d{1,11}\Z")


def lease_of(asked_at: float, bus: str) -> dict[str, str]:
    """The labels of what is asked for now; `asked_at` is in Unix seconds."""
    return {LEASE_LABEL: str(int(asked_at)), BUS_LABEL: bus}


def bus_of(made_at: datetime) -> str:
    """By when its records were begun: one that has lost them is another one."""
    return str(round(made_at.timestamp() * 1000))


def is_of_bus(labels: Mapping[str, str], bus: str) -> bool:
    return labels.get(BUS_LABEL) == bus


def asked_at(labels: Mapping[str, str]) -> float | None:
    """None where nobody wrote it, or not so."""
    text = labels.get(LEASE_LABEL, "")
    return float(text) if _SECONDS.match(text) else None
