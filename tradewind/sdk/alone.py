"""The world of a script that nobody watches over: one process, or what torchrun says."""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from torch._C._distributed_c10d import TCPStore

from tradewind.protocol.trainer import Assign, Store

_MEET_TIMEOUT: Final = timedelta(minutes=5)
_served: list[TCPStore] = []


def given_world(environ: Mapping[str, str] = os.environ) -> Assign:
    """It stays as it is: a lost peer is an error, and whoever started the ranks starts them again."""
    rank, size = int(environ.get("RANK", "0")), int(environ.get("WORLD_SIZE", "1"))
    host, port = environ.get("MASTER_ADDR", "127.0.0.1"), int(environ.get("MASTER_PORT", "0"))
    launcher_serves = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if size > 1 and rank == 0 and not launcher_serves:
        _served.append(TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=_MEET_TIMEOUT))
    # torchrun's store lives on when it starts the ranks again.
    generation = 1 + int(environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return Assign(generation, rank, size, "start", Store(host, port), address="")
