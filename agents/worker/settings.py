"""Settings of a worker-agent: flags of `tradewind worker`, or `TRADEWIND_<NAME>` in the environment."""

import os
import socket
import tempfile
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field

from messages.ids import Name


def _default_run_dir() -> str:
    return str(Path(tempfile.gettempdir()) / f"tradewind-{os.getuid()}")


class WorkerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job: Name
    """The job to work for."""
    cluster: Name = "local"
    uid: Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,56}[a-z0-9])?$")] | None = None
    """The first part of the worker's id; random by default. The second part is new at each start."""
    slots: Annotated[int, Meta(ge=1, le=64)] = 1
    """Ranks that the worker can hold."""
    python: str | None = None
    """The interpreter of the trainers. Default: the one that the job names, else the agent's own."""
    region: str = ""
    zone: str = ""
    node: str = field(default_factory=socket.gethostname)
    address: str = "127.0.0.1"
    """The address at which ranks of other workers reach those of this worker."""
    run_dir: str = field(default_factory=_default_run_dir)
    """Holds a folder for each worker. The agent ends what dead agents left running, which it finds there."""
    cgroup: bool = True
    """If permitted, the agent creates a cgroup below its own for all processes of the job."""
    echo: bool = False
    """Trainers' lines also go to the terminal, each with its rank."""
    notice_s: Annotated[float, Meta(gt=0, le=3600)] = 15.0
    """Seconds from SIGTERM to the end of the machine."""
    orphan_s: Annotated[float, Meta(gt=0)] = 600.0
    """Seconds without the bus after which the worker ends by itself."""
    warm_s: Annotated[float, Meta(gt=0)] = 180.0
    """Seconds after which a host that has not imported torch is abandoned."""
    external_host: bool = False
    """The host connects from another container; the agent does not start it."""
    host_within_s: Annotated[float, Meta(gt=0)] = 180.0
    """Seconds to wait for a host from another container."""
    host_losses: Annotated[int, Meta(ge=1)] = 5
    """Lost hosts in a row after which the worker leaves."""
    nats_url: str = "nats://127.0.0.1:4222"
    nats_credentials: str | None = None
    connect_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    host_file: str | None = None
    """Path of the host's `__main__.py`. Default: the one installed beside this agent."""
