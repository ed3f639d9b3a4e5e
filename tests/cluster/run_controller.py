"""`python run_controller.py SETTINGS.json`: the cluster-controller as a process that a test can kill."""

import sys
from pathlib import Path

import msgspec

from agents.cluster.main import main
from agents.cluster.settings import ClusterSettings
from runtime import logs
from runtime.process import run

if __name__ == "__main__":
    settings = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ClusterSettings)
    logs.configure("cluster", cluster=settings.cluster)
    sys.exit(run(lambda stop: main(settings, stop, alone=True)))
