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
    """The folder for the workers' files and outputs."""
    max_workers: Annotated[int, Meta(ge=1, le=20_000)] = 256
    """Workers of all jobs together. A command that needs more is refused."""
    keep_workers: bool = False
    """On an ordinary stop, leave the workers running for the next controller."""
    echo: bool = False
    """Workers write to this terminal instead of to files."""
    gpus: Annotated[int, Meta(ge=0, le=1024)] | None = None
    """Number of GPUs of this machine, divided among its workers; counted if not given."""
    end_grace_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """Seconds from SIGTERM to SIGKILL of a worker."""
    nats_url: str = "nats://127.0.0.1:4222"
    nats_credentials: str | None = None
    connect_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    worker_command: tuple[str, ...] = (sys.executable, "-P", "-m", "tradewind", "worker")
    """The command that starts a worker-agent; `--job`, `--cluster`, `--uid` and so on are added. `-P`: no file in the
    current folder shadows one of Tradewind's modules."""
