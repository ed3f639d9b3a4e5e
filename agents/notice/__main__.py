"""`python -m agents.notice`: the notice watcher, which runs on each node of a job in the node's own network."""

import sys

from agents.notice.main import main
from agents.notice.settings import read_notice_settings
from runtime import logs
from runtime.errors import UserError
from runtime.process import run, tell


def start() -> int:
    try:
        settings = read_notice_settings()
    except UserError as error:
        return tell(error)
    logs.configure("notice", cluster=settings.cluster, node=settings.node)
    return run(lambda stop: main(settings, stop))


if __name__ == "__main__":
    sys.exit(start())
