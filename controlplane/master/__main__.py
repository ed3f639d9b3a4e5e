"""`python -m controlplane.master`: a master with settings from its environment alone."""

import os
import sys

from controlplane.master.main import main
from controlplane.master.settings import read_master_settings
from runtime import logs
from runtime.process import Stop, run


async def _main(stop: Stop) -> int:
    return await main(read_master_settings(os.environ), stop)


if __name__ == "__main__":
    logs.configure("master")
    sys.exit(run(_main))
