"""Removes what was found, a few at a time, and tells how it goes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

from msgspec import structs

from controlplane.clouds.interface import Cloud, MachineInfo
from controlplane.clouds.outcomes import Unreachable, with_hint
from controlplane.reaper.findings import Found
from controlplane.reaper.inventory import name_of
from controlplane.reaper.removing import Fate, Removal, remove_patiently
from runtime.errors import UserError
from tradewind.cli import output
from tradewind.cli.reap.known import NobodyKnows
from tradewind.cli.reap.view import OrphanView

PATIENCE_S = 900.0
"""With what is in the way of a removal: a pool without machines in its zone is busy being made for ten minutes."""
AT_ONCE = 4

WhyKept = Callable[[Found], Awaitable[str]]
"""By what is so at this moment; raises `NobodyKnows`, or `UserError` where it cannot be known."""


async def remove_all(
    cloud: Cloud, found: Sequence[Found], views: Sequence[OrphanView], why_kept: WhyKept
) -> list[OrphanView]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def remove(each: Found, view: OrphanView) -> OrphanView:
        async with turns:
            return _told(each, view, await _removed(cloud, each, why_kept))

    async with asyncio.TaskGroup() as tasks:
        removals = [
            tasks.create_task(remove(each, view), name=f"reap/{view.name}")
            for each, view in zip(found, views, strict=True)
        ]
    return [removal.result() for removal in removals]


async def _removed(cloud: Cloud, found: Found, why_kept: WhyKept) -> Removal:
    name = name_of(found.resource)
    output.say(f"removing {name}")

    async def looked_at_again() -> str | Unreachable:
        try:
            return await why_kept(found)
        except NobodyKnows as error:
            return Unreachable(error.sentence.rstrip("."))

    def waits(why: str) -> None:
        output.say(f"{name} waits: {why}")

    try:
        return await remove_patiently(cloud, found.resource, PATIENCE_S, waits, looked_at_again)
    except UserError as error:
        return Removal(Fate.STUCK, error.sentence.rstrip("."))


def _told(found: Found, view: OrphanView, removal: Removal) -> OrphanView:
    name, why = name_of(found.resource), removal.why
    match removal.fate:
        case Fate.GONE:
            output.say(f"{name} is gone")
            return structs.replace(view, outcome="removed")
        case Fate.KEPT:
            output.say(f"{name} is kept: {why}")
            return structs.replace(view, outcome="left", why=why)
        case Fate.STUCK:
            hint = view.command if isinstance(found.resource, MachineInfo) else ""
            output.say(f"{name} could not be removed: {with_hint(why, hint)}")
            return structs.replace(view, outcome="failed", trouble=why)
        case _:
            assert_never(removal.fate)
