"""The main function of the static cluster-controller (`tradewind cluster`)."""

import asyncio

from agents.cluster.controller import Opening, opened, start_core
from agents.cluster.events import StopAsked
from agents.cluster.places import LocalPlaces
from agents.cluster.settings import ClusterSettings
from agents.cluster.shell import ClusterShell
from agents.cluster.state import Rules
from messages.ids import ClusterName
from runtime import children
from runtime.logs import logger
from runtime.process import Stop
from runtime.settings import bus_settings_of
from runtime.waiting import first_of

SAVE_S = 5.0


async def main(settings: ClusterSettings, stop: Stop, *, alone: bool = False) -> int:
    """Runs the controller. `alone`: this process has no children but workers, so it ends their orphans."""
    if alone:
        children.become_subreaper()
    async with opened(
        ClusterName(settings.cluster), bus_settings_of(settings, f"cluster/{settings.cluster}"), stop
    ) as opening:
        if opening is not None:
            await _control(settings, opening, stop, alone)
    return 0


async def _control(settings: ClusterSettings, opening: Opening, stop: Stop, alone: bool) -> None:
    clock, log = opening.clock, logger(cluster=opening.cluster)
    rules = Rules(max_workers=settings.max_workers, end_grace_s=settings.end_grace_s)
    async with asyncio.TaskGroup() as tasks:
        places = LocalPlaces(settings, opening.inbox.post, tasks, clock, alone=alone)
        places.adopt(opening.known.places if opening.known is not None else ())
        core = await start_core(opening, settings.region, rules, places, tasks, synced=True)
        log.info("cluster_controller_started", incarnation=opening.incarnation, run_dir=settings.run_dir)
        await stop.wait()
        if not settings.keep_workers:
            core.loop.post(StopAsked(clock.monotonic_s(), f"the cluster-controller is stopping ({stop.why})"))
            await _ended(core.shell, places, stop, settings.end_grace_s + SAVE_S)
        log.info("cluster_controller_stopped", **_outputs(settings, places))
        places.forget_all()
        for task in core.tasks:
            task.cancel()


async def _ended(shell: ClusterShell, places: LocalPlaces, stop: Stop, within_s: float) -> None:
    """Waits until every place has ended and the record is saved. A second request to stop kills what is left."""
    if not await first_of(shell.at_rest, stop.forced, timeout_s=within_s):
        logger().warning("controller_not_at_rest", within_s=within_s)
    if not shell.at_rest.is_set():
        await places.kill_all()


def _outputs(settings: ClusterSettings, places: LocalPlaces) -> dict[str, str | int]:
    """Returns the folder and number of outputs. Workers that ended well leave no output."""
    left = len(places.logs_left())
    return {"outputs": left, "run_dir": settings.run_dir} if left else {}
