"""`python -m agents.worker`: a worker-agent that reads all settings from the environment, as in a container."""

import os

from agents.worker.main import drain_s, main
from agents.worker.settings import WorkerSettings
from runtime.errors import UserError
from runtime.logs import configure
from runtime.process import leave, run, tell
from runtime.settings import read_settings


def start() -> int:
    try:
        settings = read_settings(WorkerSettings, os.environ)
    except UserError as error:
        return tell(error)
    configure("worker", job=settings.job)
    return run(lambda stop: main(settings, stop, alone=True), drain_s=drain_s(settings))


if __name__ == "__main__":
    leave(start())
