"""Settings of the notice daemon: `TRADEWIND_<NAME>` in the environment, and what its pod is given."""

import os
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, structs

from agents.clouds.registry import DEFAULT, cloud_of
from runtime.settings import read_settings

KUBECONFIG_VARIABLE = "KUBECONFIG"


class NoticeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node: Annotated[str, Meta(min_length=1)]
    """The node that it is on."""
    cluster: str = ""
    kubeconfig: str | None = None
    """KUBECONFIG if not given, else the pod's own service account."""
    cloud: str = DEFAULT
    """The kind of the cloud that the node is in."""
    metadata_host: str | None = None
    """Host and port of the cloud's metadata server; the cloud's own variable and address if not given."""
    notice_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """How long a machine stays after it was said to be preempted."""
    maintenance_s: Annotated[float, Meta(gt=0, le=3600)] | None = None
    """How long it stays after the maintenance of its host was announced; as the cloud documents it if not given."""
    notice_file: str | None = None
    """Instead of the cloud's own source: a file that holds the seconds that are left."""


def read_notice_settings(environ: Mapping[str, str] = os.environ) -> NoticeSettings:
    named = {"kubeconfig": environ.get(KUBECONFIG_VARIABLE) or None}
    given = {} if environ.get("TRADEWIND_KUBECONFIG") else named
    settings = read_settings(NoticeSettings, environ, given)
    variable = cloud_of(settings.cloud).metadata_variable
    return structs.replace(settings, metadata_host=settings.metadata_host or environ.get(variable) or None)
