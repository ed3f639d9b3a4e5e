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
    """The first part of the worker's id, random if not given; the second is new at each start."""
    slots: Annotated[int, Meta(ge=1, le=64)] = 1
    """Ranks it can hold."""
    python: str | None = None
    """The interpreter that trains; else the one that the job names, else the agent's own."""
    region: str = ""
    zone: str = ""
    node: str = field(default_factory=socket.gethostname)
    address: str = "127.0.0.1"
    """Where ranks of other workers reach those of this one."""
    run_dir: str = field(default_factory=_default_run_dir)
    """Holds a folder for each worker; what a dead agent left running is found there and ended."""
    cgroup: bool = True
    """Where it may, it makes a cgroup below its own for all that the job starts."""
    echo: bool = False
    """Trainers' lines also go to the terminal, each after its rank."""
    notice_s: Annotated[float, Meta(gt=0, le=3600)] = 15.0
    """What a SIGTERM leaves to hand over."""
    orphan_s: Annotated[float, Meta(gt=0)] = 600.0
    """A worker whose bus is away for so long ends by itself."""
    warm_s: Annotated[float, Meta(gt=0)] = 180.0
    """A host that has not imported torch after so long is given up."""
    external_host: bool = False
    """The host is not started but comes by itself, from another container."""
    host_within_s: Annotated[float, Meta(gt=0)] = 180.0
    """Such a host is waited for so long."""
    host_losses: Annotated[int, Meta(ge=1)] = 5
    """A worker that has lost so many hosts in a row gives up."""
    nats_url: str = "nats://127.0.0.1:4222"
    nats_credentials: str | None = None
    connect_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    host_file: str | None = None
    """`__main__.py` of the host; the one installed beside this agent if not given."""
