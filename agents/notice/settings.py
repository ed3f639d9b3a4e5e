"""Settings of the notice watcher: `TRADEWIND_<NAME>` in the environment, and `KUBECONFIG`."""

import os
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, structs

from agents.clouds.registry import DEFAULT, cloud_of
from runtime.settings import read_settings_with_kubeconfig


class NoticeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node: Annotated[str, Meta(min_length=1)]
    """The node that the watcher runs on."""
    cluster: str = ""
    kubeconfig: str | None = None
    """A kubeconfig file for the API server. Default: the file in KUBECONFIG, else the pod's own service account."""
    cloud: str = DEFAULT
    """The kind of the cloud that the node is in."""
    metadata_host: str | None = None
    """Host and port of the cloud's metadata server. Default: the cloud's own variable, else its documented address."""
    notice_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """Seconds from the announcement of a preemption to the end of the machine."""
    maintenance_s: Annotated[float, Meta(gt=0, le=3600)] | None = None
    """Seconds from the announcement of host maintenance to the machine's end. Default: as the cloud documents it."""
    notice_file: str | None = None
    """A file with the seconds that are left, used instead of the cloud's own source."""


def read_notice_settings(environ: Mapping[str, str] = os.environ) -> NoticeSettings:
    settings = read_settings_with_kubeconfig(NoticeSettings, environ)
    variable = cloud_of(settings.cloud).metadata_variable
    return structs.replace(settings, metadata_host=settings.metadata_host or environ.get(variable) or None)
