"""Settings of the static cluster-controller: flags of `tradewind cluster`, or `TRADEWIND_<NAME>` in the environment."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field

from messages.ids import Name


def _default_run_dir() -> str:
    return str(Path(tempfile.gettempdir()) / f"tradewind-{os.getuid()}")


class ClusterSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cluster: Name = "local"
    region: str = ""
    """Where the cluster is; ranks of one region become neighbours."""
    run_dir: str = field(default_factory=_default_run_dir)
    """Where workers keep their files, and where their output goes."""
    max_workers: Annotated[int, Meta(ge=1, le=20_000)] = 256
    """Of all jobs together; a command that asks for more is refused."""
    keep_workers: bool = False
    """On an ordinary stop, leave the workers running for the next controller to adopt."""
    echo: bool = False
    """Workers write to this terminal instead of to a file each."""
    gpus: Annotated[int, Meta(ge=0, le=1024)] | None = None
    """Number of GPUs of this machine, divided among its workers; counted if not given."""
    end_grace_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """From SIGTERM to SIGKILL of a worker."""
    nats_url: str = "nats://127.0.0.1:4222"
    nats_credentials: str | None = None
    connect_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    worker_command: tuple[str, ...] = (sys.executable, "-P", "-m", "tradewind", "worker")
    """Starts a worker-agent; `--job`, `--cluster`, `--uid` and so on are added. `-P`: nothing in the folder that a
    person happens to be in shadows a module of ours."""
