"""The peer of the restart benchmark: torchrun with c10d rendezvous, one agent per worker, tuned to recover fast.

The settings favour torchrun: with its defaults the same recovery took about 50 s on the machine where they were chosen.
Even shorter keep-alives split the world under load there.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.lost_worker import SCRIPT, SCRIPT_ARGS, Round, lose_one
from benchmarks.stacks import start_logged
from runtime.children import descendants, free_port

_RENDEZVOUS: Final = (
    "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,read_timeout=10,close_timeout=5"
)
_ENVIRONMENT: Final = {
    # With a shared store, restarted ranks read the addresses of the previous round.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    # Bounds torch's reverse lookups where a resolver loses replies.
    "RES_OPTIONS": "timeout:1 attempts:1",
}
_MAX_RESTARTS: Final = 20


class Torchrun:
    side = "peer"

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def start(self, command: Sequence[str], folder: Path) -> list["subprocess.Popen[bytes]"]:
        """Starts an agent for each worker; the first hosts the store."""
        endpoint = f"127.0.0.1:{free_port()}"
        return [
            start_logged(
                _agent(endpoint, self._workers, hosts_store=number == 0) + list(command),
                folder,
                f"agent-{number}",
                _ENVIRONMENT,
            )
            for number in range(self._workers)
        ]

    def one_worker(self, started: Sequence["subprocess.Popen[bytes]"]) -> list[int]:
        agent = started[-1].pid
        return [agent, *descendants(agent)]


def _agent(endpoint: str, workers: int, *, hosts_store: bool) -> list[str]:
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        f"--nnodes={workers - 1}:{workers}",
        "--nproc-per-node=1",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={endpoint}",
        "--rdzv-id=restart-benchmark",
        f"--rdzv-conf={_RENDEZVOUS},is_host={str(hosts_store).lower()}",
        "--local-addr=127.0.0.1",
        "--monitor-interval=0.02",
        f"--max-restarts={_MAX_RESTARTS}",
    ]


def restart_seconds(
    script: Path = SCRIPT, script_args: Sequence[str] = SCRIPT_ARGS, *, workers: int = 4, timeout_s: float = 120
) -> Round:
    return lose_one(Torchrun(workers), script, script_args, workers=workers, timeout_s=timeout_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    failed = 0
    for _ in range(options.rounds):
        done = restart_seconds()
        failed += done.restart_s is None
        print(done.raw(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
