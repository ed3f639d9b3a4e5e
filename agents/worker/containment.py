"""The containment of a worker: finds all processes of the job, even if they change parents, sessions and environment.

The agent is a subreaper: a descendant that loses its parent becomes the agent's child. If the agent may create a
cgroup, its host runs in one, which can be ended even after the agent was killed.
"""

import asyncio
import os
from collections.abc import Callable, Collection

from messages.ids import WorkerId
from runtime import cgroups, children
from runtime.logs import logger

REAP_EVERY_S = 1.0


def _remove_cgroups_of_dead_agents() -> None:
    for cgroup in cgroups.find_of_workers():
        agent = cgroups.agent_of(cgroup)
        if agent is not None and children.is_dead(agent):
            cgroup.remove()


class Containment:
    """The containment of a process whose only descendants are the job's processes."""

    def __init__(self, worker: WorkerId, *, use_cgroup: bool) -> None:
        children.become_subreaper()
        self.cgroup = cgroups.create(cgroups.worker_cgroup_name(worker, os.getpid())) if use_cgroup else None
        _remove_cgroups_of_dead_agents()

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
            self._end_cgroup()

    def kill(self) -> None:
        """Kills all processes in the cgroup, without waiting. `empty` finds the rest."""
        if self.cgroup is not None:
            self.cgroup.kill()

    async def empty(self) -> None:
        """Kills until no process is left. Children of a killed process become children of this one."""
        self.kill()
        left = await children.kill_until_none_async(lambda: asyncio.to_thread(self._left))
        if left:
            logger().warning("worker_not_empty", processes=left)

    async def reap(self, own: Callable[[], Collection[int]]) -> None:
        """Reaps orphans, until cancelled. `own` are the pids that somebody else waits for."""
        while True:
            children.reap_adopted(own())
            await asyncio.sleep(REAP_EVERY_S)

    def remove(self) -> None:
        """Ends what a cancelled host left. Blocks, so only the end of the process calls it."""
        self._end_cgroup()
        children.kill_until_none(self._left)

    def _left(self) -> list[int]:
        return children.alive_below(os.getpid())

    def _end_cgroup(self) -> None:
        if self.cgroup is not None:
            self.cgroup.end()
            self.cgroup = None
