"""`python -m agents.worker`: a worker-agent whose settings all come from the environment, as in a container."""

import os

from agents.worker.main import DRAIN_S, main
from agents.worker.settings import WorkerSettings
from runtime.logs import configure
from runtime.process import Stop, leave, run
from runtime.settings import read_settings


async def start(stop: Stop) -> int:
    settings = read_settings(WorkerSettings, os.environ)
    configure("worker", job=settings.job)
    return await main(settings, stop, alone=True)


if __name__ == "__main__":
    leave(run(start, drain_s=DRAIN_S))
