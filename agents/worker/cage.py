"""Holds everything that a worker's job starts, whatever it does to its parents, sessions and environment.

The agent is the subreaper of all below it: a process that loses its parent becomes the agent's child. Where the agent
may make a cgroup, its host lives in one, which can be ended also after the agent was killed.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Collection

from messages.ids import WorkerId
from runtime import cgroups, children
from runtime.logs import logger

PAUSES_S = (0.005, 0.01, 0.02, 0.05, *(0.1 for _ in range(20)))
REAP_EVERY_S = 1.0


def is_cgroup_of(name: str, worker: WorkerId) -> bool:
    return name.rpartition(".")[0] == f"tradewind-{worker}"


def _cgroup_name(worker: WorkerId) -> str:
    """The cluster-controller, which knows the first part of the id, finds it by that."""
    return f"tradewind-{worker}.{os.getpid()}"


def _remove_empty_ones_of_the_dead() -> None:
    for cgroup in cgroups.find("tradewind-*.*"):
        agent = cgroup.path.name.rpartition(".")[2]
        if agent.isdigit() and children.is_dead(int(agent)):
            cgroup.remove()


class Cage:
    """Of a process below which nothing runs but the job."""

    def __init__(self, worker: WorkerId, *, use_cgroup: bool) -> None:
        children.become_subreaper()
        self.cgroup = cgroups.create(_cgroup_name(worker)) if use_cgroup else None
        _remove_empty_ones_of_the_dead()

    @property
    def path(self) -> str:
        return str(self.cgroup.path) if self.cgroup is not None else ""

    def take(self, pid: int) -> None:
        if self.cgroup is None:
            return
        try:
            self.cgroup.add(pid)
        except OSError as error:
            logger().info("cgroup_not_used", path=self.path, error=str(error))
            self.remove()

    def kill(self) -> list[int]:
        """All that live now; those that they have just started may be left."""
        if self.cgroup is not None:
            self.cgroup.kill()
        left = children.alive_below(os.getpid())
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return left

    async def empty(self) -> None:
        """Kills until nothing is left: a killed process leaves its children to this one."""
        left: list[int] = []
        for pause_s in PAUSES_S:
            left = await asyncio.to_thread(self.kill)
            if not left:
                return
            await asyncio.sleep(pause_s)
        logger().warning("worker_not_empty", processes=left)

    async def reap(self, own: Callable[[], Collection[int]]) -> None:
        """Takes the exit codes of adopted children; `own` are those that somebody else waits for."""
        while True:
            children.reap_adopted(own())
            await asyncio.sleep(REAP_EVERY_S)

    def remove(self) -> None:
        if self.cgroup is not None:
            self.cgroup.end()
            self.cgroup = None
