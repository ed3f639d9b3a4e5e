"""Holds everything that a worker's job starts, whatever it does to its parents, sessions and environment.

The agent is the subreaper of all below it: a process that loses its parent becomes the agent's child. Where the agent
may make a cgroup, its host lives in one, which can be ended also after the agent was killed.
"""

import asyncio
import os
from collections.abc import Callable, Collection

from messages.ids import WorkerId
from runtime import cgroups, children
from runtime.logs import logger

REAP_EVERY_S = 1.0


def _remove_empty_ones_of_the_dead() -> None:
    for cgroup in cgroups.find_of_workers():
        agent = cgroups.agent_of(cgroup)
        if agent is not None and children.is_dead(agent):
            cgroup.remove()


class Cage:
    """The containment of a process below which nothing runs but the job."""

    def __init__(self, worker: WorkerId, *, use_cgroup: bool) -> None:
        children.become_subreaper()
        self.cgroup = cgroups.create(cgroups.worker_cgroup_name(worker, os.getpid())) if use_cgroup else None
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
            self._end_cgroup()

    def kill(self) -> None:
        """Kills all in the cgroup. Takes no time, so it is called on the event loop; `empty` finds the rest."""
        if self.cgroup is not None:
            self.cgroup.kill()

    async def empty(self) -> None:
        """Kills until nothing is left: a killed process leaves its children to this one."""
        self.kill()
        left = await children.kill_until_none_async(lambda: asyncio.to_thread(self._left))
        if left:
            logger().warning("worker_not_empty", processes=left)

    async def reap(self, own: Callable[[], Collection[int]]) -> None:
        """Takes the exit codes of adopted children; `own` are those that somebody else waits for."""
        while True:
            children.reap_adopted(own())
            await asyncio.sleep(REAP_EVERY_S)

    def remove(self) -> None:
        """Ends what is left, which a cancelled host has not done. Blocks: it is for the end of the process."""
        self._end_cgroup()
        children.kill_until_none(self._left)

    def _left(self) -> list[int]:
        return children.alive_below(os.getpid())

    def _end_cgroup(self) -> None:
        if self.cgroup is not None:
            self.cgroup.end()
            self.cgroup = None
