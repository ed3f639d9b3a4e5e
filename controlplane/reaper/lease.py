"""A lease on what is made in the cloud: who answers for it is in its labels, until when is in the bus's records.

The labels are written once, when a thing is made, and never changed: fleet, job, and when it was asked for. While the
job's record says that it lives, it answers for all that carries its name. Nothing has to be renewed in the cloud.
"""

import re
from collections.abc import Mapping

from controlplane.clouds.interface import LEASE_LABEL

YOUNG_S = 300.0
"""So long a thing is left alone whose job is not known: somebody may be just making both."""

_SECONDS = re.compile(r"\d{1,11}\Z")


def lease_of(asked_at: float) -> str:
    """The label of what is asked for now; `asked_at` is in Unix seconds."""
    return str(int(asked_at))


def asked_at(labels: Mapping[str, str]) -> float | None:
    """None where nobody wrote it, or not so."""
    text = labels.get(LEASE_LABEL, "")
    return float(text) if _SECONDS.match(text) else None
