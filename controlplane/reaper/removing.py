"""Removes resources. A resource that is already gone counts as removed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from controlplane.clouds.interface import Cloud, ClusterInfo, MachineInfo, PoolInfo
from controlplane.clouds.outcomes import (
    AlreadyExists,
    Busy,
    Done,
    NotFound,
    Outcome,
    PartlyDone,
    QuotaExceeded,
    Refused,
    StockedOut,
    Throttled,
    Unexplained,
    Unfinished,
    Unreachable,
    reason_of,
)
from controlplane.reaper.inventory import Resource
from runtime.backoff import pauses

NO_POOL = "the machine is in no pool, and machines are removed only with their pools"
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 15.0


async def remove(cloud: Cloud, resource: Resource) -> str:
    """Try once to remove a resource; returns what is in the way, or an empty text if it is gone."""
    outcome = await _ask(cloud, resource)
    return "" if isinstance(outcome, Done | NotFound) else reason_of(outcome)


class Fate(StrEnum):
    GONE = "gone"
    KEPT = "kept"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Removal:
    fate: Fate
    why: str = ""
    """Why it was kept or could not be removed."""


async def remove_patiently(
    cloud: Cloud,
    resource: Resource,
    patience_s: float,
    on_wait: Callable[[str], None],
    why_not_removed: Callable[[], Awaitable[str | Unreachable]],
) -> Removal:
    """Retry while the obstacle is temporary; `on_wait` gets each new obstacle.

    A resource is busy until its creation ends. `why_not_removed` is called before every try: the resource may have got
    an owner meanwhile. If it returns `Unreachable`, that is the obstacle.
    """
    reported = ""
    waits = pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    deadline_s = asyncio.get_running_loop().time() + patience_s
    while True:
        kept = await why_not_removed()
        if kept and not isinstance(kept, Unreachable):
            return Removal(Fate.KEPT, kept)
        outcome, pause_s = kept or await _ask(cloud, resource), next(waits)
        if isinstance(outcome, Done | NotFound):
            return Removal(Fate.GONE)
        why = reason_of(outcome)
        if not _may_pass(outcome) or asyncio.get_running_loop().time() + pause_s > deadline_s:
            return Removal(Fate.STUCK, why)
        if why != reported:
            on_wait(why)
            reported = why
        await asyncio.sleep(pause_s)


async def _ask(cloud: Cloud, resource: Resource) -> Outcome:
    match resource:
        case PoolInfo():
            return await cloud.delete_pool(resource.ref)
        case ClusterInfo():
            return await cloud.delete_cluster(resource.name)
        case MachineInfo():
            return Refused(NO_POOL)
        case _:
            assert_never(resource)


def _may_pass(outcome: Outcome) -> bool:
    match outcome:
        case Busy() | Throttled() | Unreachable() | Unfinished() | Unexplained():
            return True
        case Done() | PartlyDone() | NotFound() | AlreadyExists() | StockedOut() | QuotaExceeded() | Refused():
            return False
        case _:
            assert_never(outcome)
