"""Settings of the notice daemon: `TRADEWIND_<NAME>` in the environment, and what its pod is given."""

import os
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from runtime.settings import read_settings

GIVEN = {"kubeconfig": "KUBECONFIG", "metadata_host": "GCE_METADATA_HOST"}
"""Read where our own variable is not set."""


class NoticeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node: Annotated[str, Meta(min_length=1)]
    """The node that it is on."""
    cluster: str = ""
    kubeconfig: str | None = None
    """KUBECONFIG if not given, else the pod's own service account."""
    metadata_host: str = "metadata.google.internal"
    """GCE_METADATA_HOST if not given."""
    notice_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """How long a machine stays after it was said to be preempted."""
    maintenance_s: Annotated[float, Meta(gt=0, le=3600)] | None = None
    """How long it stays after the maintenance of its host was announced; by the kind of machine if not given."""
    notice_file: str | None = None
    """Instead of the metadata server: a file that holds the seconds that are left."""


def read_notice_settings(environ: Mapping[str, str] = os.environ) -> NoticeSettings:
    given = {
        name: environ.get(variable) or None
        for name, variable in GIVEN.items()
        if not environ.get(f"TRADEWIND_{name.upper()}")
    }
    return read_settings(NoticeSettings, environ, given)
