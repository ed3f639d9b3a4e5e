"""The static cluster-controller with new workers that wait for the benchmark.

In a real cluster a replacement starts on another machine. Here its start would use the cores that are measured, so it
waits while the file named by the first argument exists.
"""

import os
import sys
from collections.abc import Mapping
from typing import Final

from agents.cluster.main import main as run_cluster
from agents.cluster.settings import ClusterSettings
from runtime.logs import configure
from runtime.process import run
from runtime.settings import read_settings

_WAIT: Final = 'while [ -e "$0" ]; do sleep 0.5; done; exec "$@"'


def settings_of(gate: str, environ: Mapping[str, str]) -> ClusterSettings:
    plain = read_settings(ClusterSettings, environ)
    waiting = ("/bin/sh", "-c", _WAIT, gate, *plain.worker_command)
    return read_settings(ClusterSettings, environ, {"worker_command": waiting})


def main() -> int:
    settings = settings_of(sys.argv[1], os.environ)
    configure("cluster", cluster=settings.cluster)
    return run(lambda stop: run_cluster(settings, stop))


if __name__ == "__main__":
    raise SystemExit(main())
