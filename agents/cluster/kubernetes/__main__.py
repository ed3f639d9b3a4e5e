"""`python -m agents.cluster.kubernetes`: the cluster-controller of the Kubernetes cluster that it runs in."""

import sys

from agents.cluster.kubernetes.main import main
from agents.cluster.kubernetes.settings import read_kubernetes_settings
from runtime import logs
from runtime.errors import UserError
from runtime.process import run, tell


def start() -> int:
    try:
        settings = read_kubernetes_settings()
    except UserError as error:
        return tell(error)
    logs.configure("cluster", cluster=settings.cluster)
    return run(lambda stop: main(settings, stop))


if __name__ == "__main__":
    sys.exit(start())
